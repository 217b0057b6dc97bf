# Configuration of lit for the text of each stage; CMake gives the parameters.
import lit.formats

config.name = "stages"
config.test_format = lit.formats.ShTest(True)
config.suffixes = [".test"]
config.test_exec_root = lit_config.params["exec_root"]
config.substitutions.append(("%neso", lit_config.params["neso"]))
config.substitutions.append(("%models", lit_config.params["source"] + "/compiler/frontend/pt2/test/data"))
config.substitutions.append(("%kernels", lit_config.params["source"] + "/compiler/backend/cpu/test/kernels"))
config.substitutions.append(("%ops", lit_config.params["source"] + "/tests/goldens/ops"))
config.substitutions.append(("FileCheck", lit_config.params["filecheck"]))
