# SPDX-License-Identifier: Apache-2.0
# test_simulator, whose ranks are threads; the other programs of this folder have processes (CMakeLists.txt).
# Included from tests/CMakeLists.txt: options of sources hold for all programs of one CMakeLists.txt.
weft_test(simulator THREADS SECONDS 120 COMPUTES STATIC SOURCE simulator/test_simulator.c)

# The simulator's points are in the sources where ranks meet: copies of them, in which every atomic operation is one, take
# the place of those in the library.  Locks wait where the simulator sees it.
set(simulated base/share/signal.c base/share/wait.c coll/lane/prefetch.c coll/lane/enter.c coll/lane/fifo.c coll/host/splits.c coll/lane/lane.c coll/lane/list.c coll/lane/locations.c coll/host/move.c coll/p2p/p2p.c coll/lane/cma.c coll/lane/pipeline.c
  coll/host/reduce.c coll/calls/run.c coll/calls/work.c fabric/group/exchange.c fabric/group/group.c fabric/group/group_end.c fabric/world/job.c fabric/meet/leave.c fabric/world/watch.c fabric/world/world.c symm/registration.c
  symm/signals.c)
list(TRANSFORM simulated PREPEND ${PROJECT_SOURCE_DIR}/src/)
set_source_files_properties(${simulated} PROPERTIES COMPILE_OPTIONS
  "-include;${CMAKE_CURRENT_SOURCE_DIR}/simulator/points.h")
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/base/share/wait.c PROPERTIES COMPILE_DEFINITIONS
  weft_i_wait_for=simulator_wait_for)
target_sources(test_simulator PRIVATE ${simulated} simulator/turns.c simulator/memory.c)
target_link_options(test_simulator PRIVATE -Wl,--wrap=pthread_mutex_lock,--wrap=pthread_mutex_unlock)
