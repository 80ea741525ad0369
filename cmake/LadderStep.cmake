# ladder_add_step(step5_zero1 IDEA sharded_optimizer [more_idea] [THEORY shard_plan] [EXERCISE sharded_optimizer]
#                 [ALSO step4_x/file] BUILDS_ON step4_bucketed_ddp
#                 [TESTS a_test.cpp …] [RANKS 1 2 3 4])
#
#   step5_zero1_theory objects: the cost card and the files of THEORY, which need no tensor (Ladder.cmake)
#   step5_zero1_idea   library: the idea's files IDEA.cpp and all of those, with the ideas of the steps before
#   step5_zero1_train  library: train(), which the tests of other steps link as well
#   step5_zero1        the program, whose main() all steps share: common/train/step_main.cpp
#   step5_zero1_test   TESTS; with RANKS run under MPI, once per number of ranks
#   step5_zero1_judge  judges the learner's file in exercises/step5_zero1/, or else the solution; ./ladder exercise builds it
#   step5_zero1_exercise_test   the solution passes, the answers of exercise/sharded_optimizer.wrong do not
#   step5_zero1_stub_test   the judge says of the stubs what is not implemented
#
# Where there is an exercise/NAME.solution, NAME.cpp is what the learner is to mend, and that diff mends it. STUB_SAYS is
# then what the judge says of it.
#
# EXERCISE names the files that the learner writes, by default the first idea; each has a .stub in exercise/. It may be
# `train`, the loop. With -DLADDER_EXERCISE=step5_zero1 they are taken from exercises/step5_zero1/, the learner's own, for
# this trainer and all later ones. IDEA may have `EXERCISE:name` for what the exercise of a chapter, or of a later step, asks
# for; that step lists it in ALSO, by its path from the root. A step that is
# only built on contributes its idea library and nothing else. BUILDS_ON is data: the include check and the map in README.md
# are made from it.
#
# A chapter that trains is added in the same way, with its folder's name, and builds on its step; that one says
# add_subdirectory(CHAPTER) unless LADDER_IDEA_ONLY. It needs no exercise: without a folder exercise/ there is none. Without
# a train.cpp it trains with its step's, to which its trainer() passes something else.
function(ladder_add_step step)
  cmake_parse_arguments(arg "" "BUILDS_ON;STUB_SAYS" "IDEA;THEORY;EXERCISE;ALSO;TESTS;RANKS" ${ARGN})
  if(TARGET ${step}_idea)
    return()
  endif()
  set(folder "${CMAKE_CURRENT_SOURCE_DIR}")
  if(NOT arg_EXERCISE AND EXISTS "${folder}/exercise")
    list(GET arg_IDEA 0 arg_EXERCISE)
  endif()
  list(TRANSFORM arg_EXERCISE APPEND .cpp)
  list(TRANSFORM arg_EXERCISE PREPEND "${folder}/" OUTPUT_VARIABLE solutions)
  list(TRANSFORM arg_EXERCISE PREPEND "${step}:" OUTPUT_VARIABLE asked)
  foreach(file IN LISTS arg_ALSO)
    list(PREPEND solutions "${LADDER_ROOT}/${file}.cpp")
  endforeach()
  list(APPEND arg_THEORY cost_card)
  list(TRANSFORM arg_IDEA APPEND .cpp)
  list(TRANSFORM arg_THEORY APPEND .cpp)
  set(of_theory ${arg_THEORY})
  list(REMOVE_ITEM arg_IDEA ${arg_EXERCISE})
  list(REMOVE_ITEM arg_THEORY ${arg_EXERCISE})
  list(APPEND asked ${arg_IDEA})
  list(FILTER asked INCLUDE REGEX ":")
  list(FILTER arg_IDEA EXCLUDE REGEX ":")
  list(TRANSFORM arg_IDEA PREPEND "${folder}/")
  list(TRANSFORM arg_THEORY PREPEND "${folder}/")
  set(train "${folder}/train.cpp")
  if(NOT EXISTS "${train}")
    set(train "${LADDER_ROOT}/${arg_BUILDS_ON}/train.cpp")
  endif()
  set(answers)
  foreach(file IN LISTS asked)
    string(REPLACE ":" ";" file "${file}")
    list(POP_FRONT file exercise)
    ladder_answer(answer ${exercise} "${folder}/${file}")
    if(file STREQUAL "train.cpp")
      set(train "${answer}")
    elseif(file IN_LIST of_theory)
      list(APPEND arg_THEORY "${answer}")
    else()
      list(APPEND answers "${answer}")
    endif()
  endforeach()

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
  _ladder_theory(${step} ${arg_THEORY})
  add_library(${step}_idea STATIC ${answers} ${arg_IDEA} $<TARGET_OBJECTS:${step}_theory>)
  add_library(ladder::${step}_idea ALIAS ${step}_idea)
  _ladder_target(${step}_idea)
  target_link_libraries(${step}_idea PUBLIC ladder::train ${borrowed})
  set_property(GLOBAL APPEND PROPERTY LADDER_INSTALLED_TARGETS ${step}_idea)
  if(LADDER_IDEA_ONLY)
    return()
  endif()

  add_library(${step}_train STATIC "${train}")
  _ladder_target(${step}_train)
  set_property(GLOBAL APPEND PROPERTY LADDER_TRAINERS ${step}_train)
  target_link_libraries(${step}_train PUBLIC ${step}_idea)
  file(RELATIVE_PATH header "${LADDER_ROOT}" "${folder}/train.hpp")
  file(STRINGS "${folder}/train.hpp" namespace REGEX "^namespace ladder::")
  string(REGEX MATCH "ladder::[a-z0-9_:]+" namespace "${namespace}")
  set_target_properties(${step}_train PROPERTIES LADDER_HEADER "${header}" LADDER_NAMESPACE ${namespace})
  add_executable(${step} "${LADDER_ROOT}/common/train/step_main.cpp")
  target_compile_definitions(${step} PRIVATE LADDER_TRAIN_HEADER="${header}" LADDER_STEP=${namespace})
  _ladder_target(${step})
  target_link_libraries(${step} PRIVATE ${step}_train)

  if(arg_TESTS)
    list(TRANSFORM arg_TESTS PREPEND "${folder}/")
    ladder_add_test(${step}_test SOURCES ${arg_TESTS} LINK ${step}_train RANKS ${arg_RANKS} THREADS ${arg_RANKS} OR_ALONE)
  endif()
  if(NOT arg_EXERCISE)
    return()
  endif()
  ladder_add_exercise(${step} "${folder}/exercise" SOLUTIONS ${solutions} LINK ${step}_train ladder_judge
    STUB_SAYS ${arg_STUB_SAYS} RANKS ${arg_RANKS})
endfunction()

# ladder_list_trainers(STEP…)
#
# Adds the library ladder_trainers, with the trainers of these steps as a list: cmake/trainers.hpp.
function(ladder_list_trainers)
  set(includes)
  set(calls)
  foreach(step IN LISTS ARGN)
    get_target_property(header ${step}_train LADDER_HEADER)
    get_target_property(namespace ${step}_train LADDER_NAMESPACE)
    string(APPEND includes "#include \"${header}\"\n")
    string(APPEND calls "      ${namespace}::trainer(),\n")
  endforeach()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/trainers.cpp")
  file(CONFIGURE OUTPUT "${source}" @ONLY CONTENT "// Written by CMake: ladder_list_trainers().
#include \"cmake/trainers.hpp\"

@includes@
namespace ladder {

std::vector<Trainer> trainers() {
  return {
@calls@  };
}

}  // namespace ladder
")
  add_library(ladder_trainers STATIC EXCLUDE_FROM_ALL "${source}")
  _ladder_target(ladder_trainers)
  list(TRANSFORM ARGN APPEND _train)
  target_link_libraries(ladder_trainers PUBLIC ${ARGN})
endfunction()

# ladder_list_theories()
#
# Adds the library ladder_theory: all that needs no tensor, of the rooms of common and of each step and chapter that trains, and
# what theory says of these as a list: cmake/theories.hpp. Nothing that links it needs libtorch.
function(ladder_list_theories)
  get_property(trainers GLOBAL PROPERTY LADDER_TRAINERS)
  set(includes)
  set(calls)
  set(objects)
  foreach(room IN ITEMS core comm data model optim train)
    list(APPEND objects $<TARGET_OBJECTS:ladder_${room}_theory>)
  endforeach()
  foreach(trainer IN LISTS trainers)
    get_target_property(header ${trainer} LADDER_HEADER)
    get_target_property(namespace ${trainer} LADDER_NAMESPACE)
    string(REPLACE "train.hpp" "theory.hpp" header "${header}")
    string(APPEND includes "#include \"${header}\"\n")
    string(APPEND calls "      ${namespace}::theory(),\n")
    string(REGEX REPLACE "_train$" "" step "${trainer}")
    list(APPEND objects $<TARGET_OBJECTS:${step}_theory>)
  endforeach()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/theories.cpp")
  file(CONFIGURE OUTPUT "${source}" @ONLY CONTENT "// Written by CMake: ladder_list_theories().
#include \"cmake/theories.hpp\"

@includes@
namespace ladder {

std::vector<Theory> theories() {
  return {
@calls@  };
}

}  // namespace ladder
")
  add_library(ladder_theory STATIC EXCLUDE_FROM_ALL "${source}" "${LADDER_ROOT}/common/model/without_torch.cpp" ${objects})
  _ladder_target(ladder_theory WITHOUT_TORCH)
endfunction()

# ladder_add_exercise(collectives FOLDER CHECKS checks.cpp … SOLUTIONS a.cpp … LINK … RANKS 1 2 3 4)
#
# Adds NAME_judge, NAME_exercise_test and NAME_stub_test, as above. FOLDER has CHECKS (checks.cpp unless it has more), and a
# .stub and a .wrong for each solution. STUB_SAYS is what the judge says of the stub, unless it says what is not implemented.
function(ladder_add_exercise name folder)
  if(NOT LADDER_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "" "STUB_SAYS" "CHECKS;SOLUTIONS;LINK;RANKS" ${ARGN})
  if(NOT arg_CHECKS)
    set(arg_CHECKS checks.cpp)
  endif()
  list(TRANSFORM arg_CHECKS PREPEND "${folder}/")
  add_library(${name}_checks OBJECT ${arg_CHECKS})
  _ladder_target(${name}_checks)
  target_link_libraries(${name}_checks PUBLIC ${arg_LINK} ladder_testing)

  ladder_own_answers(${name} ${arg_SOLUTIONS})
  # Tests call judge_linked() themselves, so the program is not part of "all".
  add_executable(${name}_judge EXCLUDE_FROM_ALL ${own_answers})
  _ladder_target(${name}_judge)
  target_link_libraries(${name}_judge PRIVATE ${name}_checks ladder_testing_judge_main)

  ladder_plant_answers("${folder}" ${arg_SOLUTIONS})
  set(ranks 1 ${arg_RANKS})
  list(REMOVE_DUPLICATES ranks)
  set(judge "${LADDER_ROOT}/step0_single_gpu/judge")
  if(NOT TARGET ladder_exercise_test)  # compiled once for all exercises
    add_library(ladder_exercise_test OBJECT "${judge}/exercise_test.cpp")
    _ladder_target(ladder_exercise_test)
    target_link_libraries(ladder_exercise_test PUBLIC ladder_testing GTest::gmock)
  endif()
  ladder_add_test(${name}_exercise_test SOURCES ${planted} LINK ladder_exercise_test ${name}_checks
    RANKS ${ranks} OR_ALONE)

  if(NOT arg_STUB_SAYS)
    set(arg_STUB_SAYS "not implemented: ${name}: ")
  endif()
  ladder_make_stubs("${folder}" ${arg_SOLUTIONS})
  ladder_add_test(${name}_stub_test SOURCES "${judge}/stub_test.cpp" ${stubs} LINK ${name}_checks)
  target_compile_definitions(${name}_stub_test PRIVATE LADDER_STUB_SAYS="${arg_STUB_SAYS}")

  # What --hard hands out compiles as well.
  file(GLOB mending "${folder}/*.solution")
  if(NOT mending)
    _ladder_make(make_stub stub "${folder}" HARD ${arg_SOLUTIONS})
    add_library(${name}_hard OBJECT ${made})
    _ladder_target(${name}_hard)
    target_link_libraries(${name}_hard PRIVATE ${name}_checks)
  endif()
endfunction()

# Sets `stubs`: a file in the build folder for each solution, which scripts/make_stub makes from it and FOLDER/NAME.stub.
function(ladder_make_stubs folder)  # SOLUTION…
  _ladder_make(make_stub stub "${folder}" ${ARGN})
  set(stubs ${made} PARENT_SCOPE)
endfunction()

# Sets `planted`: a file for each solution, which scripts/plant makes from it and FOLDER/NAME.wrong. Linked next to the step's library,
# it takes the place of the solution.
function(ladder_plant_answers folder)  # SOLUTION…
  _ladder_make(plant wrong "${folder}" ${ARGN})
  set_source_files_properties(${made} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS -Wno-unused)
  set(planted ${made} PARENT_SCOPE)
endfunction()

# Sets `made`: build/…/NAME_KIND.cpp for each solution NAME.cpp, by scripts/SCRIPT from it and FOLDER/NAME.KIND. With HARD,
# NAME_hard.cpp.
function(_ladder_make script kind folder)  # [HARD] SOLUTION…
  cmake_parse_arguments(arg "HARD" "" "" ${ARGN})
  set(made)
  foreach(solution IN LISTS arg_UNPARSED_ARGUMENTS)
    get_filename_component(name "${solution}" NAME_WE)
    set(command "${LADDER_ROOT}/scripts/${script}" "${solution}" "${folder}/${name}.${kind}")
    set(source "${CMAKE_CURRENT_BINARY_DIR}/${name}_${kind}.cpp")
    set(options)
    if(arg_HARD)
      set(source "${CMAKE_CURRENT_BINARY_DIR}/${name}_hard.cpp")
      set(options --hard)
    endif()
    file(GLOB mending "${folder}/${name}.solution")  # which scripts/plant reads as well
    add_custom_command(OUTPUT "${source}" COMMAND ${command} "${source}" ${options} DEPENDS ${command} ${mending} VERBATIM)
    list(APPEND made "${source}")
  endforeach()
  set(made ${made} PARENT_SCOPE)
endfunction()

# Sets RESULT: this solution, or with -DLADDER_EXERCISE=EXERCISE the learner's file in its place. It becomes an object of
# its own in its library, so that a stub can replace it next to the others.
function(ladder_answer result exercise solution)
  if(exercise IN_LIST LADDER_EXERCISE)
    get_filename_component(name "${solution}" NAME)
    set(solution "${LADDER_EXERCISES}/${exercise}/${name}")
  endif()
  set_source_files_properties("${solution}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set(${result} "${solution}" PARENT_SCOPE)
endfunction()

# Sets `own_answers`: the learner's files for this exercise that are there. Linked next to the step's library, each takes the
# place of its solution, so judging it needs nothing else built anew.
function(ladder_own_answers exercise)  # SOLUTION…
  set(own_answers)
  foreach(solution IN LISTS ARGN)
    get_filename_component(name "${solution}" NAME)
    set(own "${LADDER_EXERCISES}/${exercise}/${name}")
    if(EXISTS "${own}")
      set_source_files_properties("${own}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      list(APPEND own_answers "${own}")
    endif()
  endforeach()
  set(own_answers ${own_answers} PARENT_SCOPE)
endfunction()
