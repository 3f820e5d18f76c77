constexpr = int
