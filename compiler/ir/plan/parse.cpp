#include "ir/plan/parse.h"

#include <unordered_map>

#include "base/diagnostics/loops.h"
#include "ir/loops/read_program.h"
#include "ir/loops/text.h"

namespace neso::plan {
namespace {

class Reader {
public:
  Status read(std::string_view text, const std::string &file) {
    // Kernels name each other: all names are known before the first is read.
    Status s = forEachLine(text, [&](std::string_view line, int) {
      Line words(line);
      if (words.indent() == 0 && words.eat("kernel")) kernels_.emplace(words.token(), kernels_.size());
      return Status::ok();
    });
    s = forEachLine(text, [&](std::string_view one, int number) -> Status {
      Line line(one);
      if (line.atEnd()) return Status::ok();
      this->line(line);
      if (!line.failed() && !line.atEnd()) line.error("nothing more is expected");
      if (line.failed()) return fail(diag::PlanSyntax, SourceLoc{file, number, 0, {}}, line.why);
      return Status::ok();
    });
    if (!s) return s;
    if (section_ == Section::Start) return fail(diag::PlanSyntax, SourceLoc{file, 1, 0, {}}, "the text is empty");
    endKernel();
    plan_.program = std::move(program_.program);
    return s;
  }
  Plan take() { return std::move(plan_); }

private:
  enum class Section { Start, Program, Before, Kernel, Steps };
  Section section_ = Section::Start;
  Plan plan_;
  loops::ProgramReader program_;
  std::unordered_map<std::string, size_t> kernels_;
  /// The regions that are open, each with its lines' indentation.
  std::vector<std::pair<Region *, int>> regions_;

  void line(Line &line) {
    if (section_ == Section::Start) {
      line.expect("plan"), program_.program.name = std::string(line.remainder());
      section_ = Section::Program;
      return;
    }
    if (line.indent() == 0) return heading(line);
    switch (section_) {
    case Section::Program:
      if (!line.next("buffer ")) return program_.read(line);
      program_.read(line);
      return placement(line);
    case Section::Before: return before(line);
    case Section::Kernel: return ofKernel(line);
    case Section::Steps: return step(line);
    case Section::Start: break;
    }
  }

  void heading(Line &line) {
    endKernel();
    if (line.eat("before")) {
      section_ = Section::Before;
      plan_.inputSizes.resize(program_.program.inputs.size());
    } else if (line.eat("kernel")) {
      section_ = Section::Kernel;
      kernel(line);
    } else if (line.eat("steps")) {
      section_ = Section::Steps;
      regions_ = {{&plan_.main, 2}};
    } else {
      line.error("'before', 'kernel' or 'steps' is expected");
    }
  }

  void placement(Line &line) {
    const loops::Buffer &buffer = program_.program.buffers.back();
    Placement p;
    p.where = homeOf(buffer.kind);
    p.bytes = paddedBytes(buffer);
    if (line.eat("in")) {
      line.expect("an"), line.expect("arena");
      p.where = Placement::Where::Arena;
    } else if (!line.atEnd()) {
      p.where = line.oneOf<Placement::Where>(kPlaces);
      if (p.where == Placement::Where::Output) p.output = static_cast<int>(line.integer());
      if (p.where == Placement::Where::Arena) {
        if (!line.next("at ")) p.arena = static_cast<size_t>(line.integer());
        line.expect("at"), p.offset = line.expr({" bytes "});
        line.expect("bytes"), p.bytes = line.expr({" steps "});
        line.expect("steps"), line.expect("["), p.firstStep = static_cast<int>(line.integer());
        line.expect(","), p.lastStep = static_cast<int>(line.integer()), line.expect("]");
      }
    }
    plan_.placements.push_back(p);
  }

  void before(Line &line) {
    if (line.eat("input")) {
      const size_t i = static_cast<size_t>(line.integer());
      line.expect("size");
      if (i >= plan_.inputSizes.size() || line.integer() != static_cast<int64_t>(plan_.inputSizes[i].size()))
        return line.error("sizes of inputs are not in order");
      InputSize size;
      line.expect("in"), size.range = line.interval();
      if (line.eat("is")) size.defines = line.symbol();
      if (line.eat("of")) size.real = line.real();
      if (line.eat("equals")) size.equal = line.expr({});
      plan_.inputSizes[i].push_back(std::move(size));
    } else if (line.eat("define")) {
      SizeDefinition d;
      d.symbol = line.symbol();
      line.expect("is"), d.value = line.expr({});
      plan_.definitions.push_back(std::move(d));
    } else if (line.eat("guard")) {
      plan_.guards.push_back(guardOn(line.expr({})));
    } else if (line.eat("arena")) {
      arena(line);
    } else {
      output(line);
    }
  }
  void arena(Line &line) {
    Arena a;
    if (!plan_.arenas.empty() && line.integer() != static_cast<int64_t>(plan_.arenas.size()))
      line.error("arenas are not in order");
    a.late = line.eat("late");
    a.bytes = line.expr({" bytes"});
    line.expect("bytes");
    if (line.eat(",")) line.expect("lower"), line.expect("bound"), plan_.arenaLowerBound = line.expr({});
    plan_.arenas.push_back(a);
  }
  void output(Line &line) {
    CallerOutput o;
    line.expect("output");
    if (line.integer() != static_cast<int64_t>(plan_.outputs.size())) line.error("outputs are not in order");
    line.expect(":"), o.bytes = line.expr({" bytes"}), line.expect("bytes");
    if (!line.eat("copied")) line.expect("of"), o.buffer = program_.named(line, line.until(" "));
    line.expect("is"), line.expect("output"), o.output = static_cast<size_t>(line.integer());
    line.expect("of"), line.expect("the"), line.expect("program");
    o.late = line.eat("late");
    plan_.outputs.push_back(std::move(o));
  }

  KernelId kernelNamed(Line &line, const std::string &name) {
    auto it = kernels_.find(name);
    if (it == kernels_.end()) return line.error(fmt::format("there is no kernel '{}',", name)), KernelId();
    return KernelId(static_cast<int64_t>(it->second));
  }

  void kernel(Line &line) {
    Kernel k;
    k.id = KernelId(static_cast<int64_t>(plan_.kernels.size()));
    k.name = line.token();
    if (kernels_.at(k.name) != plan_.kernels.size()) return line.error("another kernel has this name,");
    line.expect("x"), k.xRanges = line.list();
    line.expect("r"), k.rRanges = line.list();
    k.kind = line.oneOf<loops::Node::Kind>(loops::text::kNodes);
    k.serial = line.eat("serial");
    if (line.next("#")) line.remainder();
    plan_.kernels.push_back(std::move(k));
  }
  void endKernel() {
    std::vector<loops::Node> nodes = program_.takeNodes();
    if (section_ == Section::Kernel && !plan_.kernels.empty()) plan_.kernels.back().nodes = std::move(nodes);
  }

  void ofKernel(Line &line) {
    Kernel &k = plan_.kernels.back();
    if (line.next("node ")) return program_.read(line);
    if (line.indent() < 4) return line.error("a line of a kernel is expected");
    if (!program_.program.nodes.empty()) return program_.readOfNode(line);
    if (line.eatLetter("#")) {
      line.eatLetter(" ");
      return k.decisions.push_back(std::string(line.remainder()));
    }
    if (line.eat("part")) return k.parts.push_back(kernelNamed(line, line.token()));
    if (line.eat("at")) {
      Kernel::Attached a;
      line.expect("argument"), a.argument = static_cast<size_t>(line.integer()), line.expect(":");
      while (!line.failed() && line.eatLetter("n")) a.nodes.push_back(loops::NodeId(line.integer()));
      return k.attached.push_back(std::move(a));
    }
    if (line.eat("or")) return product(line, k.product.emplace());
    if (line.eat("function")) {
      k.function = line.token();
      line.expect("grid");
      std::vector<Expr> grid = line.list();
      if (grid.size() != k.grid.size()) return line.error("a grid of three is expected");
      std::copy(grid.begin(), grid.end(), k.grid.begin());
      line.expect("warps"), k.warps = static_cast<int>(line.integer());
      line.expect("stages"), k.stages = static_cast<int>(line.integer());
      return;
    }
    k.args.push_back(argument(line));
  }

  KernelArg argument(Line &line) {
    KernelArg a;
    if (line.eat("buffer")) {
      a.kind = KernelArg::Kind::Buffer;
      a.buffer = program_.place(line, a.offset);
      a.read = line.eat("read"), a.written = line.eat("written");
    } else if (line.eat("size")) {
      a.kind = KernelArg::Kind::Size, a.size = line.expr({});
    } else if (line.eat("int")) {
      a.kind = KernelArg::Kind::Int, a.intValue = line.integer();
    } else if (line.eat("float")) {
      a.kind = KernelArg::Kind::Float, a.floatValue = line.real();
      line.expect(":"), a.isF64 = line.dtype() == DType::F64;
    } else {
      line.error("a line of a kernel is expected");
    }
    return a;
  }

  Matrix matrix(Line &line, std::initializer_list<std::string_view> ends) {
    Matrix m;
    m.buffer = program_.named(line, line.until(" "));
    m.transposed = line.eat("^T");
    line.expect("at"), m.offset = line.expr({" pitch "});
    line.expect("pitch"), m.pitch = line.expr({" batch "});
    line.expect("batch"), m.batchStride = line.expr(ends);
    return m;
  }
  void product(Line &line, Product &p) {
    line.expect("a"), line.expect("library's"), p.batch = line.expr({" x ["}), line.expect("x");
    std::vector<Expr> sizes = line.list();
    if (sizes.size() != 3) return line.error("a product has three sizes");
    p.m = sizes[0], p.n = sizes[1], p.k = sizes[2];
    line.expect("of"), p.type = line.dtype(), line.expect("to"), p.outType = line.dtype(), line.expect(":");
    p.d = matrix(line, {" = "}), line.expect("=");
    p.a = matrix(line, {" * "}), line.expect("*");
    p.b = matrix(line, {","});
    while (line.eat(",")) {
      if (line.eat("bias"))
        p.bias = program_.named(line, line.until(" ")), line.expect("at"), p.biasOffset = line.expr({","});
      else if (line.eat("relu"))
        p.relu = true;
      else if (line.eat("in"))
        p.workspace = program_.named(line, line.until(" ,"));
      else
        line.expect("then"), p.rest = kernelNamed(line, line.token());
    }
  }

  void step(Line &line) {
    // Regions that are indented deeper are over.
    while (regions_.size() > 1 && line.indent() < regions_.back().second) regions_.pop_back();
    if (line.next("else") || line.next("do")) return secondRegion(line);
    Region &region = *regions_.back().first;
    if (line.indent() != regions_.back().second) return line.error("the indentation is of no region,");
    line.integer(), line.expect(":");
    std::optional<Step> made = stepOf(line);
    if (!made) return;
    region.steps.push_back(std::move(*made));
    const int inside = line.indent() + 2;
    if (If *branch = region.steps.back().as<If>()) regions_.push_back({&branch->then, inside});
    if (While *loop = region.steps.back().as<While>()) regions_.push_back({&loop->test, inside});
  }
  void secondRegion(Line &line) {
    Region &region = *regions_.back().first;
    Step *last = region.steps.empty() ? nullptr : &region.steps.back();
    If *branch = last ? last->as<If>() : nullptr;
    While *loop = last ? last->as<While>() : nullptr;
    if (branch && line.eat("else")) return regions_.push_back({&branch->otherwise, line.indent() + 2});
    if (loop && line.eat("do")) return regions_.push_back({&loop->body, line.indent() + 2});
    line.error("nothing is before it that it belongs to,");
  }

  /// An assertion has the model's words, which stand with it.
  Guard guardOn(Expr condition) const {
    for (const Assertion &a : program_.program.assertions)
      if (a.condition == condition) return {a.condition, a.message};
    return guardOf(condition);
  }

  std::optional<Step> stepOf(Line &line) {
    if (line.eat("launch")) {
      const KernelId k = kernelNamed(line, std::string(line.until(" ,")));
      line.remainder();
      return Launch{k};
    }
    if (line.eat("copy")) return copy(line);
    if (line.eat("guard")) return guardOn(line.expr({}));
    if (line.eat("sizes")) return line.expect("of"), EvalSizes{line.symbol()};
    if (line.eat("grow")) return line.expect("arena"), GrowArena{static_cast<size_t>(line.integer())};
    if (line.eat("allocate")) return line.expect("output"), AllocOutput{static_cast<size_t>(line.integer())};
    if (line.eat("if")) return If{line.expr({}), {}, {}};
    if (line.eat("while")) {
      While loop;
      loop.condition = line.expr({" after"});
      line.expect("after");
      return loop;
    }
    if (line.eat("extern")) {
      CallExtern call;
      call.name = line.token(), call.call = program_.externCall(line);
      if (line.failed()) return std::nullopt;
      return call;
    }
    LoadScalar load;
    load.symbol = line.symbol();
    line.expect("="), line.expect("scalar"), load.buffer = program_.named(line, line.until(" "));
    line.expect(":"), load.dtype = line.dtype();
    load.turn = program_.turnOf(line);
    if (line.failed()) return std::nullopt;
    return load;
  }
  Copy copy(Line &line) {
    Copy c;
    c.sizes = line.list();
    line.expect("of"), c.dtype = line.dtype();
    line.expect("from"), c.src = program_.named(line, line.until(" "));
    line.expect("strides"), c.srcStrides = line.list();
    line.expect("offset"), c.srcOffset = line.expr({" to "});
    line.expect("to");
    Line ahead = line;
    if (ahead.eat("output") && ahead.nextIsNumber())
      line.expect("output"), c.dstOutput = static_cast<int>(line.integer());
    else
      c.dst = program_.named(line, line.until(" "));
    line.expect("strides"), c.dstStrides = line.list();
    line.expect("offset"), c.dstOffset = line.expr({});
    return c;
  }
};

} // namespace

Result<Plan> parse(std::string_view text, const std::string &file) {
  Reader reader;
  if (Status s = reader.read(text, file); !s) return s.takeError();
  return reader.take();
}

} // namespace neso::plan
