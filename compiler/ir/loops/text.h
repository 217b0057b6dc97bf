// The text form of loops in its parts, for those that write or read texts which hold some of them.
#pragma once
#include <array>
#include <string>
#include <string_view>

#include "ir/loops/loops.h"

namespace neso::loops {

/// The buffers' names as texts have them; where two have one name, with their numbers. Borrows the program.
BufferNames bufferNames(const Program &program);
std::string print(const Node &node, const BufferNames &names);
/// What ProgramReader::externCall reads.
std::string externText(const ExternSpec &call, const BufferNames &names);
/// What ProgramReader::turnOf reads: " turn from 0", or nothing.
std::string turnText(const std::optional<int64_t> &turn);
/// The lines of a program, in the order of its text: sizes and guards; a buffer, without the line's end; inputs and
/// weights; (nodes;) outputs and trees.
std::string printSizes(const Program &program);
std::string printBuffer(const Buffer &buffer, const BufferNames &names);
std::string printInputs(const Program &program, const BufferNames &names);
std::string printOutputs(const Program &program, const BufferNames &names);

namespace text {

inline constexpr std::array<std::string_view, 5> kStoreModes = {"store", "atomic_add", "atomic_mul", "atomic_min",
                                                                "atomic_max"};
inline constexpr std::array<std::string_view, 11> kReductions = {
    "sum", "prod", "min", "max", "any", "all", "xor_sum", "argmin", "argmax", "welford", "online_softmax"};
inline constexpr std::array<std::string_view, 5> kScans = {"sum", "prod", "max", "min", "logsumexp"};
inline constexpr std::array<std::string_view, 11> kNodes = {"pointwise", "reduction", "segments",    "contraction", "scan",
                                                            "sort",      "attention", "user_kernel", "read",        "region",
                                                            "extern"};
/// Of the arguments of an operator of the caller's.
inline constexpr std::array<std::string_view, 16> kExternKinds = {"none", "tensor", "int",    "float", "bool",  "text",   "dtype",        "tensors",
                                                                  "ints", "floats", "bools", "texts", "layout", "memory_format", "device",  "object"};
/// Of what it returns.
inline constexpr std::array<std::string_view, 5> kExternResults = {"tensor", "tensors", "optional", "none", "other"};
inline constexpr std::array<std::string_view, 2> kRegions = {"if", "while"};
/// Blocks of a branch, then of a loop.
inline constexpr std::array<std::string_view, 4> kBlocks = {"then", "else", "test", "body"};
inline constexpr std::array<std::string_view, 4> kBuffers = {"input", "constant", "temp", "scalar"};
/// Of inputs and outputs.
inline constexpr std::array<std::string_view, 6> kInputs = {"tensor", "int", "float", "bool", "string", "none"};

} // namespace text
} // namespace neso::loops
