# Writes the text file IN as a C++ source OUT that defines kStandardLibrary.
file(READ ${IN} text)
file(WRITE ${OUT} "namespace neso::triton {\nextern const char *const kStandardLibrary;\nconst char *const kStandardLibrary = R\"PYTHON(${text})PYTHON\";\n}\n")
