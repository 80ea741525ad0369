#pragma once

using cudaStream_t = void*;
