#include "backend/nvidia/assembler.h"

#include "backend/nvidia/toolkit.h"
#include "base/diagnostics/backend.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

namespace neso::nvidia {

namespace {

/// A new file in the temporary directory that goes with the object.
class TemporaryFile {
public:
  explicit TemporaryFile(llvm::StringRef suffix) { ok = !llvm::sys::fs::createTemporaryFile("neso", suffix, path); }
  ~TemporaryFile() {
    if (ok) llvm::sys::fs::remove(path);
  }
  TemporaryFile(const TemporaryFile &) = delete;
  llvm::SmallString<128> path;
  bool ok = false;
};

std::string contentOf(const TemporaryFile &file) {
  auto buffer = llvm::MemoryBuffer::getFile(file.path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

bool write(const TemporaryFile &file, llvm::StringRef bytes) {
  std::error_code ec;
  llvm::raw_fd_ostream os(file.path, ec);
  if (ec) return false;
  os << bytes;
  os.close();
  const bool failed = os.has_error();
  os.clear_error();
  return !failed;
}

/// Runs a program with its output in `out`; its exit status, negative when it could not be run.
int runProgram(llvm::ArrayRef<llvm::StringRef> args, const TemporaryFile &out, std::string &why) {
  std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(""), llvm::StringRef(out.path),
                                                llvm::StringRef(out.path)};
  return llvm::sys::ExecuteAndWait(args[0], args, std::nullopt, redirects, 0, 0, &why);
}

/// The number before `unit` in `text`, as in "32 registers" or "16 bytes spill stores"; 0 when it is not there.
int numberBefore(llvm::StringRef text, llvm::StringRef unit) {
  size_t at = text.find(unit);
  if (at == llvm::StringRef::npos) return 0;
  llvm::StringRef head = text.take_front(at).rtrim();
  int value = 0;
  head.substr(head.find_last_of(" ,:") + 1).getAsInteger(10, value);
  return value;
}

/// ptxas -v writes three lines a function: which one, its stack and spills, its registers and shared memory.
std::vector<FunctionUsage> parseUsage(llvm::StringRef report) {
  std::vector<FunctionUsage> usage;
  while (!report.empty()) {
    auto [line, rest] = report.split('\n');
    report = rest;
    if (line.contains("Compiling entry function")) {
      usage.emplace_back();
      usage.back().name = line.split('\'').second.split('\'').first.str();
    }
    if (usage.empty()) continue;
    if (line.contains("spill stores"))
      usage.back().spillBytes = numberBefore(line, "bytes spill stores") + numberBefore(line, "bytes spill loads");
    if (line.contains("Used ")) {
      usage.back().registers = numberBefore(line, "registers");
      usage.back().sharedBytes = numberBefore(line, "bytes smem");
    }
  }
  return usage;
}

/// "ptxas FILE, line 239; error   : Instruction 'x' requires .target sm_90 or higher"
std::vector<RefusedLine> parseRefusals(llvm::StringRef report) {
  std::vector<RefusedLine> out;
  for (; !report.empty(); report = report.split('\n').second) {
    auto [place, why] = report.split('\n').first.split("; error");
    RefusedLine refused;
    if (place.rsplit(", line ").second.getAsInteger(10, refused.line)) continue;
    refused.why = why.ltrim(" :").str();
    out.push_back(std::move(refused));
  }
  return out;
}

/// "ptxas info    : (C7514) Potential Performance Loss: wgmma.mma_async instructions are serialized due to … in the function 'k'"
/// "ptxas info    : (C7517) warpgroup.wait is injected in around line 868 by compiler … in function 'k'"
void parseProducts(llvm::StringRef report, Assembled &result) {
  for (; !report.empty(); report = report.split('\n').second) {
    llvm::StringRef line = report.split('\n').first;
    if (!line.contains("(C75")) continue;
    llvm::StringRef function = line.rsplit("function '").second.split('\'').first;
    if (line.contains("serialized")) {
      result.serialised += line.str() + "\n";
      result.serialisedFunctions.push_back(function.str());
    }
    if (!function.empty() && !llvm::is_contained(result.changed, function)) result.changed.push_back(function.str());
  }
}

} // namespace

bool Assembled::serialisedIn(const std::string &symbol) const {
  return llvm::any_of(serialisedFunctions, [&](const std::string &named) { return named.empty() || named == symbol; });
}

std::optional<std::string> findAssembler(const std::string &given) { return findTool("ptxas", given); }

Result<Assembled> assemble(const std::string &ptx, const Chip &chip, const std::string &ptxas, int threads,
                           std::vector<RefusedLine> *refused) {
  TemporaryFile in("ptx"), out("cubin"), log("log");
  std::string why = "cannot write to the temporary directory";
  if (!in.ok || !out.ok || !log.ok || !write(in, ptx)) return fail(diag::NvidiaAssembler, {}, ptxas, why);
  const std::string arch = std::string(chip.arch), split = "--split-compile=" + std::to_string(threads);
  llvm::SmallVector<llvm::StringRef, 12> args = {ptxas, "-v", "-arch", arch, "-O3", in.path, "-o", out.path};
  if (threads > 1) args.push_back(split);
  int status = runProgram(args, log, why);
  const std::string report = contentOf(log);
  if (status != 0) {
    if (refused) *refused = parseRefusals(report);
    return fail(diag::NvidiaAssembler, {}, ptxas, status < 0 ? why : report);
  }
  const std::string cubin = contentOf(out);
  Assembled result;
  result.cubin.assign(cubin.begin(), cubin.end());
  result.usage = parseUsage(report);
  parseProducts(report, result);
  return result;
}

Result<std::string> disassemble(const std::vector<uint8_t> &cubin, const std::string &ptxas) {
  const std::string beside = llvm::sys::path::parent_path(ptxas).str();
  std::optional<std::string> tool = findTool("cuobjdump", {}, beside);
  llvm::StringRef flag = "-sass";
  // nvdisasm comes in a wheel of its own; it names each instruction's place unless it is told not to.
  if (!tool) tool = findTool("nvdisasm", {}, beside), flag = "-c";
  if (!tool) return fail(diag::NvidiaNoDisassembler, {});
  TemporaryFile in("cubin"), log("sass");
  std::string why = "cannot write to the temporary directory";
  if (!in.ok || !log.ok || !write(in, llvm::StringRef(reinterpret_cast<const char *>(cubin.data()), cubin.size())))
    return fail(diag::NvidiaDisassembler, {}, *tool, why);
  const int status = runProgram({*tool, flag, in.path}, log, why);
  std::string text = contentOf(log);
  if (status != 0) return fail(diag::NvidiaDisassembler, {}, *tool, status < 0 ? why : text);
  return text;
}

} // namespace neso::nvidia
