# Writes the file IN as a C++ source OUT that defines the byte array NAME and its length NAME_size.
file(READ ${IN} hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
file(WRITE ${OUT} "extern \"C\" {\nextern const unsigned char ${NAME}[];\nextern const unsigned long ${NAME}_size;\nconst unsigned char ${NAME}[] = {${bytes}};\nconst unsigned long ${NAME}_size = sizeof ${NAME};\n}\n")
