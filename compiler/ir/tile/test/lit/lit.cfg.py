# Configuration of lit for the tile dialect's text tests; CMake gives the two parameters.
import lit.formats

config.name = "tile"
config.test_format = lit.formats.ShTest(True)
config.suffixes = [".mlir"]
config.test_exec_root = lit_config.params["exec_root"]
config.substitutions.append(("tile-opt", lit_config.params["tile_opt"]))
config.substitutions.append(("FileCheck", lit_config.params["filecheck"]))
config.substitutions.append(("%not", "!"))
