# ladder_add_step(step5_zero1 IDEA sharded_optimizer [more_idea] BUILDS_ON step4_bucketed_ddp TESTS a_test.cpp … [RANKS 1 2 3 4])
#
#   step5_zero1_idea   library: the idea's files IDEA.cpp, with the ideas of the steps before
#   step5_zero1_train  library: train() and the cost card, which the tests of other steps link as well
#   step5_zero1        the program
#   step5_zero1_test   TESTS: among them those of the exercise's grader; with RANKS run under MPI, once per number of ranks
#   step5_zero1_grade  the grader of the exercise, on the answer that is linked
#   step5_zero1_stub_test   exercise/stub_test.cpp: the stub compiles and fails for the right reason
#
# A step that is only built on contributes its idea library and nothing else. With -DLADDER_EXERCISE=step5_zero1 the
# first idea's file is taken from exercises/step5_zero1/, the learner's own, for this trainer and all later ones.
# BUILDS_ON is data: the include check and the map in README.md are made from it.
function(ladder_add_step step)
  cmake_parse_arguments(arg "" "BUILDS_ON" "IDEA;TESTS;RANKS" ${ARGN})
  if(TARGET ${step}_idea)
    return()
  endif()
  set(folder "${LADDER_ROOT}/${step}")
  list(TRANSFORM arg_IDEA APPEND .cpp OUTPUT_VARIABLE idea_files)
  list(GET idea_files 0 exercise_file)
  list(TRANSFORM idea_files PREPEND "${folder}/")
  if(LADDER_EXERCISE STREQUAL step)
    list(POP_FRONT idea_files)
    list(PREPEND idea_files "${LADDER_EXERCISES}/${step}/${exercise_file}")
  endif()

  set(borrowed)
  if(arg_BUILDS_ON)
    if(NOT TARGET ${arg_BUILDS_ON}_idea)
      set(is_borrowed "${LADDER_IDEA_ONLY}")
      set(LADDER_IDEA_ONLY ON)
      add_subdirectory("${LADDER_ROOT}/${arg_BUILDS_ON}" "${CMAKE_BINARY_DIR}/${arg_BUILDS_ON}")
      set(LADDER_IDEA_ONLY "${is_borrowed}")
    endif()
    set(borrowed ${arg_BUILDS_ON}_idea)
  endif()
  # An object of its own in the library, so that the stub can stand in for it beside the others.
  list(GET idea_files 0 first_file)
  set_source_files_properties("${first_file}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  add_library(${step}_idea STATIC ${idea_files})
  add_library(ladder::${step}_idea ALIAS ${step}_idea)
  _ladder_target(${step}_idea)
  target_link_libraries(${step}_idea PUBLIC ladder::train ${borrowed})
  set_property(GLOBAL APPEND PROPERTY LADDER_INSTALLED_TARGETS ${step}_idea)
  if(LADDER_IDEA_ONLY)
    return()
  endif()

  add_library(${step}_train STATIC "${folder}/train.cpp" "${folder}/cost_card.cpp")
  _ladder_target(${step}_train)
  target_link_libraries(${step}_train PUBLIC ${step}_idea)
  add_executable(${step} "${folder}/main.cpp")
  _ladder_target(${step})
  target_link_libraries(${step} PRIVATE ${step}_train)

  list(TRANSFORM arg_TESTS PREPEND "${folder}/")
  ladder_add_test(${step}_test SOURCES ${arg_TESTS} "${folder}/exercise/grader.cpp" LINK ${step}_train
    RANKS ${arg_RANKS} OR_ALONE)
  ladder_add_test(${step}_grade SOURCES "${folder}/exercise/grade.cpp" "${folder}/exercise/grader.cpp"
    LINK ${step}_train ladder_testing_grade_main RANKS ${arg_RANKS} OR_ALONE OWN_MAIN)
  ladder_add_test(${step}_stub_test LINK ${step}_idea  # whose other files the stub may need
    SOURCES "${folder}/exercise/${exercise_file}" "${folder}/exercise/stub_test.cpp")
endfunction()
