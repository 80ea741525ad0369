// Included first by tests that are built for a sanitizer: they compile in two thirds of the time.
// The code that they test keeps its optimization.
#pragma clang optimize off
