# How every library, program and test of Neso is declared:
#   neso_library(NAME SRCS … DEPS … [MLIR] [PCH TARGET])   a static library; MLIR marks the few that see MLIR headers, PCH names another
#                                                          precompiled header than the common one
#   neso_test(NAME SRCS … DEPS …)               a GoogleTest program, run by ctest under the same name
#   neso_program(NAME SRCS … DEPS …)            an executable in bin/
#   neso_fuzzer(NAME [MLIR] SRCS … DEPS … ARGS …)   a libFuzzer program, run by ctest with a fixed seed and the given arguments
# Libraries, tests and programs stand side by side in the folder of their subject.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

add_library(neso_flags INTERFACE)
target_include_directories(neso_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/compiler
                           ${PROJECT_BINARY_DIR})
# What TableGen writes keeps rules of its own.
target_include_directories(neso_flags SYSTEM INTERFACE ${PROJECT_BINARY_DIR}/compiler)
# C has no parameters without names, so a function of a given form may have some that it does not read.
target_compile_options(neso_flags INTERFACE -Wall -Wextra $<$<COMPILE_LANGUAGE:C>:-Wno-unused-parameter>
                       $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<BOOL:$<TARGET_PROPERTY:NESO_EXCEPTIONS>>>>:-fno-exceptions -fno-rtti>)
# Nothing unwinds what throws nothing: tables for it are over a megabyte of the shipped program.
if(NESO_STATIC_LLVM)
  target_compile_options(neso_flags INTERFACE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<BOOL:$<TARGET_PROPERTY:NESO_EXCEPTIONS>>>>:-fno-asynchronous-unwind-tables>)
endif()
# libstdc++ before 13.3 calls a deprecated function in its own std::stable_sort, and clang blames us for it.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_FLAGS "-std=c++20 -Werror=deprecated-declarations")
check_cxx_source_compiles("#include <algorithm>
int main() { int a[2] = {1, 0}; std::stable_sort(a, a + 2); return a[0]; }" NESO_STABLE_SORT_IS_CURRENT)
unset(CMAKE_REQUIRED_FLAGS)
if(NOT NESO_STABLE_SORT_IS_CURRENT)
  target_compile_options(neso_flags INTERFACE -Wno-deprecated-declarations)
endif()
if(NESO_SANITIZE)
  add_compile_options(-fsanitize=${NESO_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=${NESO_SANITIZE})
endif()

# libFuzzer comes with clang's runtime libraries. The thread sanitizer does not go with it.
set(CMAKE_REQUIRED_FLAGS -fsanitize=fuzzer)
check_cxx_source_compiles("extern \"C\" int LLVMFuzzerTestOneInput(const unsigned char *, unsigned long) { return 0; }" NESO_HAVE_LIBFUZZER)
unset(CMAKE_REQUIRED_FLAGS)
if(NESO_HAVE_LIBFUZZER AND NOT NESO_SANITIZE MATCHES thread)
  set(fuzz_default ON)
else()
  set(fuzz_default OFF)
endif()
option(NESO_FUZZ "Build the libFuzzer targets" ${fuzz_default})
# Coverage guides the fuzzers where sanitizers watch them; elsewhere they only replay what their seed gives.
if(NESO_FUZZ AND NESO_SANITIZE MATCHES address)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

if(NESO_BUILD_TESTS)
  enable_testing()
  find_package(GTest QUIET)
endif()

# Precompiled headers, which most compile time goes into otherwise. Targets that see MLIR reuse neso_mlir_pch (NesoLLVM.cmake), the others of
# the compiler neso_std_pch, tests without MLIR neso_gtest_pch; a target whose options differ from theirs has one of its own.
# neso_own_pch(TARGET HEADER IDENTITY): HEADER is precompiled for this target. IDENTITY stands for what it includes from outside the checkout in
# the compiler cache (cmake/cached_compiler): the file itself holds the paths of this checkout.
function(neso_own_pch target header identity)
  target_precompile_headers(${target} PRIVATE ${header})
  # Without time stamps the compiler cache can serve the header, and with it every file that uses it.
  target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.pch.of CONTENT "${identity}\n" @ONLY)
endfunction()

# What most of a compile's time does not run in: all but LLVM and what sees its headers. -O1 builds it in two thirds of the time of -O2.
set(NESO_LIGHT $<$<CONFIG:Release>:-O1>)

# neso_pch(TARGET HEADER IDENTITY [OPTION…]): compiles HEADER once, for neso_reuse_pch; whoever uses it is compiled with those options too.
function(neso_pch target header identity)
  file(WRITE ${PROJECT_BINARY_DIR}/${target}.cpp "")
  add_library(${target} OBJECT ${PROJECT_BINARY_DIR}/${target}.cpp)
  target_link_libraries(${target} PUBLIC neso_flags)
  target_compile_options(${target} PRIVATE ${ARGN})
  set_target_properties(${target} PROPERTIES NESO_PCH_OPTIONS "${ARGN}")
  neso_own_pch(${target} ${header} "${identity}")
endfunction()

function(neso_reuse_pch name target)
  # The header is compiled with -fPIC; an executable's own -fPIE would not match it.
  get_target_property(type ${name} TYPE)
  if(type STREQUAL "EXECUTABLE")
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${name} PRIVATE -fPIC)
  endif()
  get_target_property(options ${target} NESO_PCH_OPTIONS)
  target_compile_options(${name} PRIVATE ${options})
  target_precompile_headers(${name} REUSE_FROM ${target})
endfunction()

# MLIR, another one or none: which precompiled header a target's files get.
function(neso_precompile name mlir)
  if(mlir)
    neso_use_mlir(${name})
  elseif(ARGN)
    neso_reuse_pch(${name} ${ARGN})
  elseif(TARGET neso_std_pch)
    neso_reuse_pch(${name} neso_std_pch)
  endif()
endfunction()

if(NESO_BUILD_TESTS AND GTest_FOUND)
  neso_pch(neso_gtest_pch ${PROJECT_SOURCE_DIR}/cmake/gtest_pch.h "${GTest_VERSION}")
  target_link_libraries(neso_gtest_pch PUBLIC GTest::gtest)
endif()

function(neso_library name)
  cmake_parse_arguments(A "MLIR" "PCH" "SRCS;DEPS" ${ARGN})
  if(A_SRCS)
    add_library(${name} STATIC ${A_SRCS})
    set(scope PUBLIC)
  else()
    add_library(${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(${name} ${scope} neso_flags ${A_DEPS})
  if(A_SRCS)
    neso_precompile(${name} ${A_MLIR} ${A_PCH})
  endif()
endfunction()

function(neso_program name)
  cmake_parse_arguments(A "MLIR" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${A_SRCS})
  target_link_libraries(${name} PRIVATE neso_flags ${A_DEPS})
  neso_precompile(${name} ${A_MLIR})
endfunction()

function(neso_test name)
  if(NOT NESO_BUILD_TESTS OR NOT GTest_FOUND)
    return()
  endif()
  cmake_parse_arguments(A "MLIR" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${A_SRCS})
  target_link_libraries(${name} PRIVATE neso_flags ${A_DEPS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE NESO_SOURCE_DIR="${PROJECT_SOURCE_DIR}" NESO_BINARY_DIR="${PROJECT_BINARY_DIR}")
  neso_precompile(${name} ${A_MLIR} neso_gtest_pch)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
endfunction()

function(neso_fuzzer name)
  cmake_parse_arguments(A "MLIR" "" "SRCS;DEPS;ARGS" ${ARGN})
  add_executable(${name} ${A_SRCS})
  target_link_libraries(${name} PRIVATE neso_flags ${A_DEPS})
  target_compile_definitions(${name} PRIVATE NESO_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  if(A_MLIR)
    neso_use_mlir(${name})
    # The precompiled header is not instrumented.
    set_target_properties(${name} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
  endif()
  add_test(NAME ${name} COMMAND ${name} -seed=1 ${A_ARGS})
endfunction()
