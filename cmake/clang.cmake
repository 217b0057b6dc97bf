# The compilers, found once for a build folder whatever PATH says later. A preset that names them without a folder takes what PATH holds at each
# configuration; where that is another path than the cached one, CMake throws its cache away, options included, and goes on with the system's compiler.
foreach(language C CXX)
  if(NOT CMAKE_${language}_COMPILER)
    set(name clang)
    if(language STREQUAL "CXX")
      set(name clang++)
    endif()
    find_program(NESO_${language}_COMPILER NAMES ${name}-22 PATHS /usr/lib/llvm-22/bin)
    # LLVM's own folder has it without the number.
    find_program(NESO_${language}_COMPILER NAMES ${name} PATHS /usr/lib/llvm-22/bin /usr/lib64/llvm22/bin NO_DEFAULT_PATH REQUIRED)
    set(CMAKE_${language}_COMPILER ${NESO_${language}_COMPILER})
  endif()
endforeach()
