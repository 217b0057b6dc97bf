# LLVM and MLIR 22. Shared libraries for quick development builds, static archives for the release program
# (NESO_STATIC_LLVM), which is then one file that needs nothing installed.
find_package(MLIR REQUIRED CONFIG PATHS /usr/lib/llvm-22/lib/cmake/mlir NO_DEFAULT_PATH)
find_package(LLD REQUIRED CONFIG PATHS /usr/lib/llvm-22/lib/cmake/lld NO_DEFAULT_PATH)
if(NOT LLVM_VERSION_MAJOR EQUAL 22)
  message(FATAL_ERROR "Neso needs LLVM and MLIR 22 (Debian: libmlir-22-dev), found ${LLVM_VERSION}")
endif()
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
include(TableGen)
include(AddLLVM)
include(AddMLIR)
find_package(fmt REQUIRED)
find_package(simdjson REQUIRED)

# Of shared libraries the release program needs those of a bare system and libsimdjson, which Debian and Ubuntu offer in no other form.
if(NESO_STATIC_LLVM)
  add_library(neso_fmt STATIC ${PROJECT_SOURCE_DIR}/cmake/fmt.cpp)
  target_include_directories(neso_fmt SYSTEM PUBLIC $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>)
  foreach(pair ZLIB::ZLIB=libz.a zstd::libzstd_shared=libzstd.a)
    string(REPLACE "=" ";" pair ${pair})
    list(GET pair 0 target)
    list(GET pair 1 archive)
    find_library(${archive}_path ${archive})
    if(TARGET ${target} AND ${archive}_path)
      foreach(suffix "" _NONE _RELEASE _RELWITHDEBINFO)
        set_target_properties(${target} PROPERTIES IMPORTED_LOCATION${suffix} ${${archive}_path})
      endforeach()
    endif()
  endforeach()
else()
  add_library(neso_fmt INTERFACE)
  target_link_libraries(neso_fmt INTERFACE fmt::fmt)
endif()

add_library(neso_llvm INTERFACE)
target_include_directories(neso_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS} ${LLD_INCLUDE_DIRS})
separate_arguments(llvm_definitions NATIVE_COMMAND ${LLVM_DEFINITIONS})
target_compile_definitions(neso_llvm INTERFACE ${llvm_definitions})

add_library(neso_mlir_headers INTERFACE)
target_link_libraries(neso_mlir_headers INTERFACE neso_llvm)

# The MLIR libraries that Neso uses; with the shared library one file stands for all of them.
set(NESO_MLIR_STATIC MLIRIR MLIRParser MLIRSupport MLIRPass MLIRTransforms MLIRTransformUtils MLIRRewrite
    MLIRAnalysis MLIRArithDialect MLIRMathDialect MLIRSCFDialect MLIRControlFlowDialect MLIRFuncDialect MLIRUBDialect
    MLIRFuncInlinerExtension MLIRLLVMDialect MLIRLLVMIRTransforms MLIRSideEffectInterfaces MLIRInferTypeOpInterface MLIRFunctionInterfaces
    MLIRCallInterfaces MLIRControlFlowInterfaces MLIRLoopLikeInterface MLIRSCFUtils MLIRSCFTransforms MLIRDialectUtils MLIRAsmParser
    MLIRBytecodeReader MLIRBytecodeWriter)
set(NESO_LLVM_COMPONENTS core support analysis passes target targetparser mc object codegen
    x86codegen x86desc x86info aarch64codegen aarch64desc aarch64info
    nvptxcodegen nvptxdesc nvptxinfo irreader linker bitreader bitwriter ipo scalaropts instcombine transformutils
    vectorize option demangle debuginfodwarf binaryformat cgdata objcarcopts coroutines instrumentation)

if(NESO_STATIC_LLVM)
  # The archives of MLIR and lld name the shared LLVM as what they need. Two copies of LLVM in one program corrupt each other's memory:
  # take that need out, and link the archives of LLVM in its place.
  foreach(target ${MLIR_EXPORTED_TARGETS} ${LLD_EXPORTED_TARGETS})
    if(TARGET ${target})
      get_target_property(needs ${target} INTERFACE_LINK_LIBRARIES)
      if(needs)
        list(REMOVE_ITEM needs LLVM)
        set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${needs}")
      endif()
    endif()
  endforeach()
  llvm_map_components_to_libnames(NESO_LLVM_LIBS ${NESO_LLVM_COMPONENTS})
  # lld brings LTO.
  list(PREPEND NESO_LLVM_LIBS ${LLVM_LIBRARY_DIR}/libLLVMLTO.a ${LLVM_LIBRARY_DIR}/libLLVMDTLTO.a ${LLVM_LIBRARY_DIR}/libLLVMPlugins.a)
  # LLVM names z3 as a need; nothing that Neso uses calls it.
  target_link_options(neso_llvm INTERFACE -Wl,--as-needed)
  target_link_libraries(neso_llvm INTERFACE -Wl,--start-group ${NESO_LLVM_LIBS} -Wl,--end-group)
  target_link_libraries(neso_mlir_headers INTERFACE ${NESO_MLIR_STATIC})

  # lld initialises all parts of every target that LLVM was built with, 70 MB of code. What Neso never calls is defined as empty: targets that it
  # does not compile for and, since no code of its own holds assembly to be read, the parsers of the others (2.2 MB); NVPTX has none.
  set(stubs "/* Made by cmake/NesoLLVM.cmake: parts of LLVM that Neso never calls. */\n")
  foreach(target ${LLVM_TARGETS_TO_BUILD})
    set(parts AsmParser Disassembler)
    if(NOT target MATCHES "^(X86|NVPTX|AArch64)$")
      list(APPEND parts TargetInfo Target TargetMC AsmPrinter)
    endif()
    foreach(part ${parts})
      string(APPEND stubs "void LLVMInitialize${target}${part}(void) {}\n")
    endforeach()
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/unused_llvm.c CONTENT "${stubs}" @ONLY)
  # Sources of the shipped program, not a library: they must come before the archives that define the same.
  # Folding equal functions would take off another 7 MB (--icf=all), but LLVM compares addresses of some (the default register allocator's);
  # --icf=safe takes off 0.6 MB and warns of each archive that Debian has stripped.
  set(NESO_SHIPPED_SOURCES ${PROJECT_BINARY_DIR}/unused_llvm.c ${PROJECT_SOURCE_DIR}/cmake/no_polly.cpp ${PROJECT_SOURCE_DIR}/cmake/older_glibc.c)
else()
  target_link_libraries(neso_llvm INTERFACE LLVM)
  target_link_libraries(neso_mlir_headers INTERFACE MLIR)
  # libMLIR.so is not on the loader's default path.
  set(CMAKE_BUILD_RPATH ${LLVM_LIBRARY_DIR})
endif()
add_library(neso_lld INTERFACE)
target_link_libraries(neso_lld INTERFACE lldELF lldCommon neso_llvm)

# The files of this machine's LLVM, for the identity of precompiled headers.
file(TIMESTAMP ${LLVM_INCLUDE_DIR}/llvm/Config/llvm-config.h NESO_LLVM_INSTALLED)
neso_pch(neso_std_pch ${PROJECT_SOURCE_DIR}/cmake/std_pch.h "${fmt_VERSION}" ${NESO_LIGHT})
target_link_libraries(neso_std_pch PUBLIC neso_fmt)
neso_pch(neso_mlir_pch ${PROJECT_SOURCE_DIR}/cmake/mlir_pch.h "${LLVM_PACKAGE_VERSION} ${NESO_LLVM_INSTALLED}")
target_link_libraries(neso_mlir_pch PUBLIC neso_mlir_headers neso_fmt)
add_dependencies(neso_mlir_pch neso_tile_inc)

function(neso_use_mlir name)
  target_link_libraries(${name} PUBLIC neso_mlir_headers)
  neso_reuse_pch(${name} neso_mlir_pch)
endfunction()
