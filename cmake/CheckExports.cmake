# cmake -DNM=nm -DPROGRAM=neso -P CheckExports.cmake: the shipped program exports no C function. The code of packages that it loads would call
# that one in place of the C library's.
execute_process(COMMAND ${NM} -D --defined-only ${PROGRAM} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[0-9a-f]+ [A-Za-z] [^\n]+" lines "${symbols}")
foreach(line ${lines})
  string(REGEX REPLACE "^[0-9a-f]+ [A-Za-z] " "" name "${line}")
  if(NOT name MATCHES "^_Z")
    message(FATAL_ERROR "${PROGRAM} exports '${name}', which packages would call in place of the C library's: make it hidden")
  endif()
endforeach()
