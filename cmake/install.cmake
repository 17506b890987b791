# The installed package: headers under include/stepgraph, static libraries, and a config for find_package(stepgraph).

include(CMakePackageConfigHelpers)

get_property(folder_targets GLOBAL PROPERTY STEPGRAPH_FOLDER_TARGETS)
install(TARGETS ${folder_targets} stepgraph_umbrella EXPORT stepgraph_targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/stepgraph DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
install(EXPORT stepgraph_targets NAMESPACE stepgraph:: FILE stepgraph-targets.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/stepgraph)
if(TARGET stepgraph)
  install(TARGETS stepgraph RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/stepgraph-config.cmake.in ${PROJECT_BINARY_DIR}/stepgraph-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/stepgraph)
# Before 1.0 a minor version may break.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/stepgraph-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/stepgraph-config.cmake ${PROJECT_BINARY_DIR}/stepgraph-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/stepgraph)
