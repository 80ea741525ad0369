// Carries the precompiled header (see Ladder.cmake).
