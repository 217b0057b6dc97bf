// Loading packages: what is right loads, and every kind of damage is refused by name.
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "test/fuzz_load.h"

using namespace neso_test;
using B = PackageBuilder;

namespace {
neso_status load(const std::string &bytes, const neso_model_options *options = nullptr) {
  neso_model_options o = options ? *options : modelOptions();
  neso_model *model = nullptr;
  neso_status status = neso_model_load_memory(bytes.data(), bytes.size(), &o, &model);
  neso_model_free(model);
  return status;
}
std::string slurp(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream s;
  s << file.rdbuf();
  return s.str();
}
// A package whose kernels lie in it as a shared object.
std::string packageWithCode(const char *arch = "x86-64") {
  B b = addThenDouble();
  b.targets.push_back(fbs::CreateTarget(b.fb, fbs::TargetKind::Cpu, b.fb.CreateString(arch),
                                        b.fb.CreateString("data/neso/model/code/it")));
  b.members.emplace_back("data/neso/model/code/it", slurp(NESO_BINARY_DIR "/lib/libneso_test_kernels.so"));
  return b.package();
}
struct TemporaryFile {
  char path[32] = "/tmp/neso_load_XXXXXX";
  explicit TemporaryFile(const std::string &bytes) {
    int file = mkstemp(path);
    EXPECT_EQ(write(file, bytes.data(), bytes.size()), ssize_t(bytes.size()));
    close(file);
  }
  ~TemporaryFile() { unlink(path); }
};
} // namespace

TEST(Load, FromAFileAndFromMemoryWithItsOwnCode) {
  std::string bytes = packageWithCode();
  TemporaryFile file(bytes);
  neso_model_options plain{};
  plain.struct_size = sizeof plain;
  for (bool from_file : {true, false}) {
    neso_model *model = nullptr;
    neso_context *context = nullptr;
    ASSERT_EQ(from_file ? neso_model_load(file.path, &plain, &model)
                        : neso_model_load_memory(bytes.data(), bytes.size(), &plain, &model),
              NESO_OK)
        << neso_error_text();
    ASSERT_EQ(neso_context_create(model, nullptr, &context), NESO_OK);
    Tensor x({3}, {1, 2, 3});
    neso_tensor out{};
    ASSERT_EQ(neso_run(context, &x.t, 1, &out, 1), NESO_OK) << neso_error_text();
    EXPECT_EQ(floats(out, 3), (std::vector<float>{4, 6, 8}));
    neso_context_free(context);
    neso_model_free(model);
  }
}

TEST(Load, SeveralModelsOfOneFileAtOnce) {
  // The second object must not be taken for the first one: both come from anonymous files.
  std::string first = packageWithCode(), second = packageWithCode();
  neso_model_options plain{};
  plain.struct_size = sizeof plain;
  neso_model *models[8];
  for (int i = 0; i < 8; ++i)
    ASSERT_EQ(neso_model_load_memory(first.data(), first.size(), &plain, &models[i]), NESO_OK) << neso_error_text();
  for (int i = 0; i < 8; ++i) neso_model_free(models[i]);
}

TEST(Load, UnalignedMemoryIsCopied) {
  std::string bytes = "x" + addThenDouble().package();
  neso_model_options o = modelOptions();
  neso_model *model = nullptr;
  ASSERT_EQ(neso_model_load_memory(bytes.data() + 1, bytes.size() - 1, &o, &model), NESO_OK) << neso_error_text();
  neso_constant_info info;
  ASSERT_EQ(neso_model_constant(model, 0, &info), NESO_OK);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(info.tensor.data) % 64, 0u);
  neso_model_free(model);
}

TEST(Load, TellsWhatItHolds) {
  Loaded m(addThenDouble().package());
  ASSERT_EQ(m.status, NESO_OK);
  neso_value_info in, out;
  ASSERT_EQ(neso_model_input(m.model, 0, &in), NESO_OK);
  ASSERT_EQ(neso_model_output(m.model, 0, &out), NESO_OK);
  EXPECT_STREQ(in.name, "x");
  EXPECT_EQ(in.dims[0].min, 2);
  EXPECT_EQ(in.dims[0].max, 100);
  EXPECT_STREQ(in.dims[0].symbol, "s0");
  EXPECT_STREQ(out.dims[0].symbol, "s0");
  EXPECT_EQ(neso_model_input(m.model, 1, &in), NESO_INVALID_ARGUMENT);
  neso_constant_info c;
  ASSERT_EQ(neso_model_constant(m.model, 0, &c), NESO_OK);
  EXPECT_STREQ(c.name, "layer.weight");
  EXPECT_STREQ(neso_model_metadata(m.model, "owner"), "me");
  EXPECT_EQ(neso_model_metadata(m.model, "nothing"), nullptr);
  int64_t size;
  const char *name = "s0";
  int64_t value = 17;
  ASSERT_EQ(neso_model_solve_sizes(m.model, &name, &value, 1, &size), NESO_OK);
  EXPECT_EQ(size, 17);
  neso_model_stats stats;
  neso_model_get_stats(m.model, &stats);
  EXPECT_EQ(stats.launch_count, 2);
  EXPECT_EQ(stats.constant_bytes, 400u);
}

TEST(Load, ConstantsMayBeGivenByTheCaller) {
  std::string bytes = addThenDouble().package();
  std::vector<float> w(100, 5);
  int64_t sizes[] = {100}, wrong[] = {99};
  neso_tensor t{w.data(), sizes, nullptr, 1, NESO_F32, NESO_CPU, 0};
  const char *name = "layer.weight", *other = "other";
  neso_model_options o = modelOptions();
  o.constant_names = &name;
  o.constants = &t;
  o.constant_count = 1;
  neso_model *model = nullptr;
  ASSERT_EQ(neso_model_load_memory(bytes.data(), bytes.size(), &o, &model), NESO_OK) << neso_error_text();
  neso_context *context = nullptr;
  ASSERT_EQ(neso_context_create(model, nullptr, &context), NESO_OK);
  Tensor x({2}, {1, 2});
  neso_tensor out{};
  ASSERT_EQ(neso_run(context, &x.t, 1, &out, 1), NESO_OK);
  EXPECT_EQ(floats(out, 2), (std::vector<float>{12, 14}));
  neso_context_free(context);
  neso_model_free(model);
  t.sizes = wrong;
  EXPECT_STATUS(load(bytes, &o), NESO_INVALID_ARGUMENT, "has size 99 in dimension 0, the model's has 100");
  o.constant_names = &other;
  EXPECT_STATUS(load(bytes, &o), NESO_NO_SUCH_NAME, "no constant 'other'");
}

TEST(Load, RefusesFilesThatAreNoPackages) {
  neso_model *model = nullptr;
  EXPECT_STATUS(neso_model_load("/nonexistent.neso", nullptr, &model), NESO_FILE_UNREADABLE,
                "cannot open '/nonexistent.neso': No such file");
  EXPECT_STATUS(neso_model_load("/", nullptr, &model), NESO_FILE_UNREADABLE, "it is not a file");
  TemporaryFile empty("");
  EXPECT_STATUS(neso_model_load(empty.path, nullptr, &model), NESO_NOT_A_PACKAGE, "is empty");
  EXPECT_STATUS(load("hello, this is some text and nothing else at all"), NESO_NOT_A_PACKAGE,
                "does not start as a zip file does");
  EXPECT_STATUS(load(zip({{"archive_format", "pt2"}, {"models/model.json", "{}"}})), NESO_NOT_A_PACKAGE,
                "holds no compiled model");
}

/// Two models in one package, by their names; the second has code for GPUs only.
static std::string forTwoDevices(const char *cpu, const char *cuda) {
  std::vector<std::pair<std::string, std::string>> all = addThenDouble().finish();
  const std::string plan = "data/neso/model/plan";
  for (auto &[name, bytes] : all)
    if (name == plan) name = std::string("data/neso/") + cpu + "/plan";
  for (auto &[name, bytes] : addThenDouble(1, {"sm_90"}).finish()) {
    const std::string own = name == plan ? std::string("data/neso/") + cuda + "/plan" : name;
    if (std::none_of(all.begin(), all.end(), [&](const auto &member) { return member.first == own; })) all.push_back({own, bytes});
  }
  return zip(all);
}

TEST(Load, ChoosesByTheDevicesThatPlansHaveCodeFor) {
  for (const auto &[cpu, cuda] : {std::pair{"m/cpu", "m/cuda"}, {"m/cuda", "m/cpu"}, {"m/host", "m/there"}}) {
    const std::string bytes = forTwoDevices(cpu, cuda);
    for (const char *name : {(const char *)nullptr, "m"})
      for (neso_device_kind device : {NESO_CPU, NESO_CUDA}) {
        neso_model_options o = modelOptions();
        o.look_only = 1, o.name = name, o.for_device = 1 + device;
        neso_model *model = nullptr;
        ASSERT_EQ(neso_model_load_memory(bytes.data(), bytes.size(), &o, &model), NESO_OK) << neso_error_text();
        neso_target_info target;
        ASSERT_EQ(neso_model_target(model, 0, &target), NESO_OK);
        EXPECT_EQ(target.kind, device) << cpu;
        neso_model_free(model);
      }
    neso_model_options o = modelOptions();
    o.look_only = 1;
    EXPECT_STATUS(load(bytes, &o), NESO_NO_SUCH_MODEL, "several models");
    o.name = "n", o.for_device = 1 + NESO_CPU;
    EXPECT_STATUS(load(bytes, &o), NESO_NO_SUCH_MODEL, "no model 'n'");
  }
}

TEST(Load, RefusesTheWrongModelArchAndVersion) {
  std::string bytes = addThenDouble().package();
  neso_model_options o = modelOptions();
  o.name = "other";
  EXPECT_STATUS(load(bytes, &o), NESO_NO_SUCH_MODEL, "no model 'other'; it holds: model");
  o.name = "model";
  EXPECT_EQ(load(bytes, &o), NESO_OK);
  // A device chooses among models that are called after it, and this is none.
  o.for_device = 1 + NESO_CUDA;
  EXPECT_EQ(load(bytes, &o), NESO_OK);
  o.name = "other";
  EXPECT_STATUS(load(bytes, &o), NESO_NO_SUCH_MODEL, "no model 'other'");
  o.for_device = 0, o.name = "model";
  o.arch = "x86-64-v9";
  EXPECT_STATUS(load(bytes, &o), NESO_NO_FITTING_TARGET, "holds code for x86-64");
  EXPECT_STATUS(load(packageWithCode("riscv64")), NESO_NO_FITTING_TARGET,
                "holds code for riscv64, and none of it runs on this machine");
  // It can be looked at, but not run.
  const std::string other = packageWithCode("riscv64");
  neso_model_options look = modelOptions();
  look.look_only = 1;
  neso_model *model = nullptr;
  ASSERT_EQ(neso_model_load_memory(other.data(), other.size(), &look, &model), NESO_OK) << neso_error_text();
  neso_target_info target;
  ASSERT_EQ(neso_model_target(model, 0, &target), NESO_OK);
  EXPECT_STREQ(target.arch, "riscv64");
  EXPECT_EQ(target.chosen, 0);
  neso_context *context = nullptr;
  EXPECT_STATUS(neso_context_create(model, nullptr, &context), NESO_INVALID_ARGUMENT, "look_only");
  neso_model_free(model);
  B newer = addThenDouble();
  newer.formatMajor = NESO_PLAN_MAJOR + 1;
  EXPECT_STATUS(load(newer.package()), NESO_PACKAGE_TOO_NEW, "use a newer runtime");
}

#if defined(__x86_64__)
// Levels that the runtime does not know are never loaded, silently, wherever there is another.
TEST(Load, TakesCodeOfEveryLevelThatTheProcessorHas) {
  int taken = 0;
#define ON_X86 &&true
#define ON_ARM64 &&false
#define FEATURE(name) &&__builtin_cpu_supports(name)
// Theirs is the next test.
#define TILES &&false
#define SCALABLE(bytes) &&false
#define NESO_CPU_NEEDS(level, name, needs)                                                                              \
  if (true needs) {                                                                                                    \
    EXPECT_EQ(load(packageWithCode(name)), NESO_OK) << name;                                                           \
    ++taken;                                                                                                           \
  }
#include "abi/cpu_levels.def"
#undef NESO_CPU_NEEDS
#undef ON_X86
#undef ON_ARM64
#undef FEATURE
#undef TILES
#undef SCALABLE
  EXPECT_GE(taken, 1);
}

// The system may refuse the tile registers even where the CPU has them (older kernels, sandboxes): as if the CPU had
// none.
TEST(Load, WithoutLeaveForMatrixTilesOtherCodeIsTaken) {
  std::string tiles = packageWithCode("x86-64-v4+amx");
  const std::vector<std::string> archs = {"x86-64", "x86-64-v4+amx"};
  B b = addThenDouble(1, {}, archs);
  for (const std::string &arch : archs)
    b.members.emplace_back("data/neso/model/code/" + arch, slurp(NESO_BINARY_DIR "/lib/libneso_test_kernels.so"));
  std::string both = b.package();
  auto refuseTiles = [] {
    sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 1),
                            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    sock_fprog program{4, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
  };
  // In a process of its own: a filter cannot be taken back. It ends with the number of the check that failed.
  auto checks = [&] {
    if (!refuseTiles()) return 1;
    neso_model_options plain{};
    plain.struct_size = sizeof plain;
    if (load(tiles, &plain) != NESO_NO_FITTING_TARGET) return 2;
    if (!strstr(neso_error_text(), "holds code for x86-64-v4+amx, and none of it runs on this machine")) return 3;
    neso_model *model = nullptr;
    if (neso_model_load_memory(both.data(), both.size(), &plain, &model) != NESO_OK) return 4;
    neso_target_info info{};
    return neso_model_target(model, 0, &info) == NESO_OK && info.chosen ? 0 : 5;
  };
  pid_t child = fork();
  if (child == 0) _exit(checks());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
#endif

TEST(Load, RefusesMissingParts) {
  B b = addThenDouble();
  b.members.clear();
  EXPECT_STATUS(load(b.package()), NESO_PACKAGE_MEMBER_MISSING,
                "constant 'layer.weight' lies in 'data/weights/weight_0'");
  B kernel = addThenDouble();
  kernel.kernel("absent", 0);
  EXPECT_STATUS(load(kernel.package()), NESO_PACKAGE_MALFORMED, "does not hold kernel 'absent'");
  B code = addThenDouble();
  code.targets.push_back(
      fbs::CreateTarget(code.fb, fbs::TargetKind::Cpu, code.fb.CreateString("x86-64"), code.fb.CreateString("code")));
  code.members.emplace_back("code",
                            "this is no ELF file at all, although it is long enough to hold a header of one.....");
  EXPECT_STATUS(load(code.package()), NESO_PACKAGE_MALFORMED, "is not a shared object for this machine");
}

TEST(Load, RefusesPlansThatContradictThemselves) {
  auto broken = [](void (*damage)(B &)) {
    B b = addThenDouble();
    damage(b);
    return b.package();
  };
  const std::string cases[] = {
      broken([](B &b) { b.launch(7, {}, 0); }),
      broken([](B &b) { b.launch(0, {B::arg(0)}, 0); }),
      broken([](B &b) { b.launch(1, {B::arg(99)}, 0); }),
      broken([](B &b) { b.launch(1, {B::slotArg(64)}, 0); }),
      broken([](B &b) { b.launch(1, {B::arg(0)}, -1); }),
      broken([](B &b) { b.argPlaces = {{0, 8}, {8, 8}}, b.kernel("test_double", 1); }),
      broken([](B &b) { b.argPlaces = {{4, 8}}, b.kernel("test_double", 1); }),
      broken([](B &b) { b.argPlaces = {{8, 8}, {0, 8}}, b.kernel("test_double", 2); }),
      broken([](B &b) { b.argPlaces = {{0, 16}, {8, 8}}, b.kernel("test_double", 2); }),
      broken([](B &b) { b.argPlaces = {{0, 0}}, b.kernel("test_double", 1); }),
      broken([](B &b) { b.argPlaces = {{-8, 8}}, b.kernel("test_double", 1); }),
      broken([](B &b) { b.argPlaces = {{0, INT32_MAX}}, b.kernel("test_double", 1); }),
      broken([](B &b) { // a place for 128 bytes, of which a launch gives 8
        b.argPlaces = {{0, 128}};
        b.launch(b.kernel("test_double", 1), {B::arg(0)}, 0);
      }),
      broken([](B &b) { b.launch(1, {fbs::Arg(fbs::ArgKind(99), 0, -1, 0)}, 0); }),
      broken([](B &b) { b.size(fbs::SizeOp(200), 40, 0, 0); }),
      broken([](B &b) { b.size(fbs::SizeOp(2), 40, 0, 0); }), // a number that no operation has
      broken([](B &b) { b.size(fbs::SizeOp::Add, 0, 0, 0); }), // writes a constant
      broken([](B &b) { b.size(fbs::SizeOp::Add, 40, 64, 0); }),
      broken([](B &b) { b.prologueEnd = 9; }),
      broken([](B &b) { b.slotCount = 1; }),
      broken([](B &b) { b.buffers.emplace_back(fbs::Location(9), fbs::DType::F32, 0, -1, 0); }),
      broken([](B &b) { b.buffer(fbs::Location::Arena, 1, 0); }),
      broken([](B &b) { b.output("z", 50, {}); }),
      broken([](B &b) { b.output("z", 0, {99}); }),
      broken([](B &b) { b.step(fbs::Step::If, fbs::CreateIf(b.fb, 0, 0, 0)); }), // a sub-plan that contains itself
      broken([](B &b) { b.step(fbs::Step::GrowArena, fbs::CreateGrowArena(b.fb, 5)); }),
      broken([](B &b) { b.input("bad", std::vector<fbs::InputDim>(65)); }),
      broken([](B &b) { b.weight("big", {1000}, "1234"); }),
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i)
    EXPECT_EQ(load(cases[i]), NESO_PACKAGE_MALFORMED) << "case " << i << ": " << neso_error_text();
}

TEST(Load, EveryTruncationIsRefused) {
  std::string bytes = addThenDouble().package();
  for (size_t n = 0; n < bytes.size(); ++n) {
    std::string cut = bytes.substr(0, n);
    neso_status s = n ? load(cut) : NESO_NOT_A_PACKAGE;
    EXPECT_TRUE(s == NESO_PACKAGE_TRUNCATED || s == NESO_NOT_A_PACKAGE || s == NESO_PACKAGE_MALFORMED)
        << n << " " << neso_error_text();
  }
}

// Every changed byte is noticed, but for those that carry nothing: padding, dates, attributes.
TEST(Load, AlteredContentIsRefused) {
  std::string bytes = packageWithCode();
  size_t unnoticed = 0;
  for (size_t i = 0; i<bytes.size(); i += bytes.size()> 4096 ? 7 : 1) {
    std::string changed = bytes;
    changed[i] = char(changed[i] ^ 0x10);
    unnoticed += load(changed) == NESO_OK;
  }
  EXPECT_LT(unnoticed, 80u);
  for (const char *part : {"\x7f"
                           "ELF",
                           "NESO", "layer.weight"}) {
    std::string changed = bytes;
    changed[bytes.find(part)] ^= 1;
    EXPECT_EQ(load(changed), NESO_PACKAGE_ALTERED) << part;
  }
}

// The same inputs as the fuzzer's, from a plain seeded generator: altered plans with right checksums never crash.
TEST(Load, AlteredPlansNeverCrash) {
  std::vector<std::pair<std::string, std::string>> members = addThenDouble().finish();
  std::string plan = "\1" + members[1].second, package = std::string(1, '\0') + zip(members);
  uint64_t state = 88172645463325252u;
  auto next = [&] {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  };
  for (int i = 0; i < 20000; ++i) {
    std::string changed = i % 4 ? plan : package;
    for (uint64_t k = next() % 4 + 1; k; --k) {
      size_t at = 1 + next() % (changed.size() - 1);
      static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff, 64, 32, 3};
      changed[at] = next() % 2 ? char(values[next() % 8]) : char(next());
    }
    fuzzOne(reinterpret_cast<const uint8_t *>(changed.data()), changed.size());
  }
}

TEST(Load, LeavesNoFilesOpen) {
  auto count = [] {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d)) ++n;
    closedir(d);
    return n;
  };
  std::string good = packageWithCode(), bad = good.substr(0, good.size() - 30);
  TemporaryFile file(good);
  int before = count();
  for (int i = 0; i < 5; ++i) {
    neso_model *model = nullptr;
    neso_model_load(file.path, nullptr, &model);
    neso_model_free(model);
    EXPECT_NE(load(bad), NESO_OK);
  }
  EXPECT_EQ(count(), before);
}

TEST(Status, CodesAndNamesAreUnique) {
  std::map<std::string, int> codes;
#define NESO_STATUS(name, value, code, text) ++codes[code];
#include "abi/status.def"
#undef NESO_STATUS
  for (const auto &[code, n] : codes) EXPECT_EQ(n, 1) << code;
  EXPECT_STREQ(neso_status_code(NESO_INPUT_DTYPE), "E0824");
  EXPECT_STREQ(neso_status_name(NESO_INPUT_DTYPE), "INPUT_DTYPE");
}
