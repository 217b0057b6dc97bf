// Enums and attributes of `tt`. The numbers are those of Triton's generic form (`cache = 3 : i32`), so they are part of the text.
#ifndef NESO_TILE_ATTRS
#define NESO_TILE_ATTRS
include "ir/tile/TileDialect.td"

class Tile_Enum<string name, string summary, list<I32EnumAttrCase> cases> : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::neso::tt";
}
class Case<string id, int value, string text> : I32EnumAttrCase<id, value, text>;

// Hints about caches; a target may ignore them.
def Tile_CacheModifier : Tile_Enum<"CacheModifier", "how a load or store uses the caches", [
  Case<"NONE", 1, "none">, Case<"CA", 2, "ca">, Case<"CG", 3, "cg">, Case<"WB", 4, "wb">, Case<"CS", 5, "cs">,
  Case<"WT", 6, "wt">, Case<"CV", 7, "cv">]>;
def Tile_EvictionPolicy : Tile_Enum<"EvictionPolicy", "which lines leave the cache first", [
  Case<"NORMAL", 1, "evict_normal">, Case<"EVICT_FIRST", 2, "evict_first">, Case<"EVICT_LAST", 3, "evict_last">]>;
// What a load outside the tensor of a block pointer or descriptor gives.
def Tile_PaddingOption : Tile_Enum<"PaddingOption", "value of elements outside the tensor",
  [Case<"PAD_ZERO", 1, "zero">, Case<"PAD_NAN", 2, "nan">]>;
def Tile_RMWOp : Tile_Enum<"RMWOp", "what an atomic read-modify-write computes", [
  Case<"AND", 1, "and">, Case<"OR", 2, "or">, Case<"XOR", 3, "xor">, Case<"ADD", 4, "add">, Case<"FADD", 5, "fadd">,
  Case<"MAX", 6, "max">, Case<"MIN", 7, "min">, Case<"UMAX", 8, "umax">, Case<"UMIN", 9, "umin">,
  Case<"XCHG", 10, "exch">]>;
def Tile_DescriptorReduceKind : Tile_Enum<"DescriptorReduceKind", "what a descriptor reduction computes", [
  Case<"ADD", 1, "add">, Case<"MIN", 2, "min">, Case<"MAX", 3, "max">, Case<"INC", 4, "inc">, Case<"DEC", 5, "dec">,
  Case<"AND", 6, "and">, Case<"OR", 7, "or">, Case<"XOR", 8, "xor">]>;
def Tile_MemSemantic : Tile_Enum<"MemSemantic", "memory order of an atomic", [
  Case<"RELAXED", 1, "relaxed">, Case<"ACQUIRE", 2, "acquire">, Case<"RELEASE", 3, "release">,
  Case<"ACQUIRE_RELEASE", 4, "acq_rel">]>;
def Tile_MemSyncScope : Tile_Enum<"MemSyncScope", "who takes part in the order",
  [Case<"GPU", 1, "gpu">, Case<"CTA", 2, "cta">, Case<"SYSTEM", 3, "sys">]>;
def Tile_ProgramIDDim : Tile_Enum<"ProgramIDDim", "axis of the launch grid", [Case<"X", 0, "x">, Case<"Y", 1, "y">, Case<"Z", 2, "z">]>;
def Tile_RoundingMode : Tile_Enum<"RoundingMode", "rounding of a float cast",
  [Case<"RTZ", 0, "rtz">, Case<"RTNE", 1, "rtne">]>;
// minNum/maxNum drop a NaN operand ("none"); minimum/maximum keep it ("all").
def Tile_PropagateNan : Tile_Enum<"PropagateNan", "what a NaN operand does", [Case<"NONE", 0, "none">, Case<"ALL", 0xFFFF, "all">]>;
// How f32 operands enter a dot: tf32 (10 bits of mantissa), split products, or exactly.
def Tile_InputPrecision : Tile_Enum<"InputPrecision", "precision of a dot's f32 operands", [
  Case<"TF32", 0, "tf32">, Case<"TF32x3", 1, "tf32x3">, Case<"IEEE", 2, "ieee">, Case<"BF16x3", 3, "bf16x3">,
  Case<"BF16x6", 4, "bf16x6">]>;
def Tile_ScaleDotElemType : Tile_Enum<"ScaleDotElemType", "element format of a scaled dot's operand", [
  Case<"E4M3", 0, "e4m3">, Case<"E5M2", 1, "e5m2">, Case<"E2M3", 2, "e2m3">, Case<"E3M2", 3, "e3m2">, Case<"E2M1", 4, "e2m1">,
  Case<"BF16", 5, "bf16">, Case<"FP16", 6, "fp16">]>;

// Spelling of cache hints since Triton 3.9: {cachePolicy = #tt.cache_policy<cache_modifier = cg, eviction_policy = evict_last>}.
// Load and store hold the two enums; this attribute exists in text only.
def Tile_CachePolicyAttr : AttrDef<Tile_Dialect, "CachePolicy"> {
  let mnemonic = "cache_policy";
  let parameters = (ins EnumParameter<Tile_CacheModifier>:$cache_modifier, EnumParameter<Tile_EvictionPolicy>:$eviction_policy);
  let assemblyFormat = "`<` struct(params) `>`";
}
#endif
