# Debian packages by `cpack -G DEB`: libneso0, libneso-dev, neso.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME neso)
set(CPACK_PACKAGE_VENDOR Neso)
# Debian's own variables say who makes a package; without them the address is none, which lintian refuses.
if(DEFINED ENV{DEBEMAIL})
  set(maintainer "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
else()
  set(maintainer "the Neso project <neso@localhost>")
endif()
set(NESO_MAINTAINER "${maintainer}" CACHE STRING "Who answers for the Debian packages: Name <address>")
set(CPACK_PACKAGE_CONTACT "${NESO_MAINTAINER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Ahead-of-time compiler for PyTorch models and Triton kernels")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL runtime development)
if(NOT NESO_RUNTIME_ONLY)
  list(APPEND CPACK_COMPONENTS_ALL compiler)
endif()
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# What each library comes from is asked of dpkg, where it is there.
find_program(NESO_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(NESO_SHLIBDEPS)
if(NESO_SHLIBDEPS)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  # Of a program that is not linked statically.
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${LLVM_LIBRARY_DIR})
endif()
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libneso0)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION "This package holds the library that loads and runs packages of
compiled models and kernels, on CPUs and on NVIDIA GPUs. It needs the C
library alone.")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/triggers)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libneso-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libneso0 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "This package holds what programs are built with that run compiled
models and kernels: headers for C and C++, an archive, and files for CMake
and pkg-config.")
set(CPACK_DEBIAN_COMPILER_PACKAGE_NAME neso)
set(CPACK_DEBIAN_COMPILER_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_COMPILER_DESCRIPTION "This package holds the program neso: it compiles exported PyTorch
programs and Triton kernels into packages for libneso, without Python, and
runs, measures and verifies them.")
# What links against libneso depends on this version of it.
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)

# Debian's own copy of the licence stands in for the text; its exceptions are not there.
file(READ ${PROJECT_SOURCE_DIR}/LICENSE licence)
string(FIND "${licence}" "--- LLVM Exceptions" at)
string(SUBSTRING "${licence}" ${at} -1 exceptions)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/copyright "Copyright: 2026 the authors of Neso\nLicense: Apache-2.0 with LLVM exceptions\n\n\
On Debian systems the text of the Apache License, version 2.0, is in /usr/share/common-licenses/Apache-2.0.\n\n${exceptions}")
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/changelog "neso (${PROJECT_VERSION}) unstable; urgency=medium\n\n  * This version.\n\n\
 -- ${CPACK_PACKAGE_CONTACT}  Sun, 01 Nov 2026 00:00:00 +0000\n")
find_program(GZIP gzip)
mark_as_advanced(GZIP)
if(GZIP)
  execute_process(COMMAND ${GZIP} -9nf ${CMAKE_CURRENT_BINARY_DIR}/changelog COMMAND_ERROR_IS_FATAL ANY)
endif()

# What lintian is told: CPack writes the calls of ldconfig beside the trigger, and the program holds zlib to start on systems without it.
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/overrides/libneso0 "libneso0: maintscript-calls-ldconfig *\n")
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/overrides/neso "neso: embedded-library zlib *\n")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/overrides/libneso0 DESTINATION share/lintian/overrides COMPONENT runtime)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/overrides/neso DESTINATION share/lintian/overrides COMPONENT compiler)

foreach(pair "runtime;libneso0" "development;libneso-dev" "compiler;neso")
  list(GET pair 0 component)
  list(GET pair 1 package)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/copyright DESTINATION share/doc/${package} COMPONENT ${component})
  if(GZIP)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/changelog.gz DESTINATION share/doc/${package} COMPONENT ${component})
  endif()
endforeach()
include(CPack)
