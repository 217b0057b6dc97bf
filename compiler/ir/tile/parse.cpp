// Text to tile IR, and MLIR's diagnostics to ours.
#include "base/diagnostics/tile.h"
#include "ir/tile/tile.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

using namespace mlir;

namespace neso {

SourceLoc sourceLoc(Location loc) {
  SourceLoc out;
  std::string name;
  loc->walk([&](Location inner) {
    if (FileLineColLoc file = dyn_cast<FileLineColLoc>(inner)) {
      out.file = file.getFilename().str();
      out.line = static_cast<int>(file.getLine());
      out.column = static_cast<int>(file.getColumn());
      return WalkResult::interrupt();
    }
    if (NameLoc named = dyn_cast<NameLoc>(inner); named && name.empty()) name = named.getName().str();
    return WalkResult::advance();
  });
  out.context = name;
  return out;
}

DiagnosticCapture::DiagnosticCapture(MLIRContext *ctx) : ctx_(ctx) {
  handler_ = ctx->getDiagEngine().registerHandler([this](mlir::Diagnostic &d) {
    if (d.getSeverity() == DiagnosticSeverity::Error) errors_.push_back({sourceLoc(d.getLocation()), d.str()});
    return success();
  });
}

DiagnosticCapture::~DiagnosticCapture() { ctx_->getDiagEngine().eraseHandler(handler_); }

Error DiagnosticCapture::take(Diag kind, std::string fallback) {
  std::vector<neso::Diagnostic> out;
  for (Item &item : errors_) out.push_back(makeDiag(kind, std::move(item.loc), item.message));
  if (out.empty()) out.push_back(makeDiag(kind, {}, fallback));
  errors_.clear();
  return Error(std::move(out));
}

Status verifyTile(ModuleOp module) {
  DiagnosticCapture capture(module.getContext());
  std::vector<neso::Diagnostic> unknown;
  module->walk([&](Operation *op) {
    if (op->isRegistered()) return;
    std::string name = op->getName().getStringRef().str();
    unknown.push_back(makeDiag(diag::TileUnknownOp, sourceLoc(op->getLoc()), name));
  });
  if (!unknown.empty()) return Error(std::move(unknown));
  if (failed(mlir::verify(module)))
    return capture.take(diag::TileInvalid, "the module breaks a rule that was not named");
  return Status::ok();
}

Result<OwningOpRef<ModuleOp>> parseTile(std::string_view text, std::string_view file, MLIRContext *ctx) {
  DiagnosticCapture capture(ctx);
  std::string name(file);
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(StringRef(text.data(), text.size()), name),
                             llvm::SMLoc());
  ParserConfig config(ctx, false);
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(sources, config);
  if (!module) return capture.take(diag::TileSyntax, "no module in '" + name + "'");
  Status status = verifyTile(*module);
  if (!status) return status.takeError();
  return module;
}

} // namespace neso
