# Configuration of lit for the PTX text tests; CMake gives the parameters. `nvc FILE` compiles for sm_90 with 4 warps.
import lit.formats

config.name = "nvidia"
config.test_format = lit.formats.ShTest(True)
config.suffixes = [".ttir"]
config.test_exec_root = lit_config.params["exec_root"]
config.substitutions.append((r"\bnvc\b", lit_config.params["nvc"]))
config.substitutions.append((r"\bFileCheck\b", lit_config.params["filecheck"]))
