// A function of the caller's that is called before the callee returns, and not kept: what a lambda is passed as to a function
// that is not a template. No copy is made, so it costs a pointer and an indirect call.
//
//     void forEachAccess(const Node &node, FunctionRef<void(const Access &)> f);
#pragma once
#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace neso {

template <typename Signature> class FunctionRef;

template <typename R, typename... Args> class FunctionRef<R(Args...)> {
public:
  template <typename F>
    requires(!std::same_as<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<R, F &, Args...>)
  FunctionRef(F &&f)
      : callable_(const_cast<void *>(static_cast<const void *>(std::addressof(f)))), call_([](void *callable, Args... args) -> R {
          return (*static_cast<std::add_pointer_t<F>>(callable))(std::forward<Args>(args)...);
        }) {}
  R operator()(Args... args) const { return call_(callable_, std::forward<Args>(args)...); }

private:
  void *callable_;
  R (*call_)(void *, Args...);
};

} // namespace neso
