// SPDX-License-Identifier: Apache-2.0
// The kinds of Unary, Binary and Compare, one a line: all that is particular to a kind but its gradient (ops/rows/elementwise_gradients.cpp). The columns'
// words and the functions of the formulas are those of ops/elementwise_table.h, which makes rows of these lines; this folder reads kinds and names alone.
//
//   kind      in code, of UnaryKind, BinaryKind or CompareKind
//   text      its name in text form, and of PyTorch's operator where the importer has no row of its own
//   takes     Takes: which dtypes
//   body      ScalarBody: how code generation makes it, and so what it costs
//   linear    Linearity: in which operands
//   neutral   Neutral: the second operand that gives the first; Commutes (to the bit) or Ordered
//   floats    of doubles x, or a and b (an Instruction of two operands: also of floats)
//   integers  of int64_t, result wrapped to the dtype; no_formula where the kind does not take them
#pragma once

// clang-format off
#define STEPGRAPH_UNARY_KINDS(X) \
  /* kind      text           takes     body           linear     floats                                integers */ \
  X(Negate,     "neg",        Numbers,  Instruction,   InFirst,   -x,                                   wrap_subtract(0, x)) \
  X(Abs,        "abs",        Numbers,  Instruction,   NotLinear, std::fabs(x),                         x < 0 ? wrap_subtract(0, x) : x) \
  X(Sign,       "sign",       Numbers,  Formula,       NotLinear, x > 0 ? 1.0 : x < 0 ? -1.0 : x,       int64_t{x > 0} - int64_t{x < 0}) \
  X(Exp,        "exp",        Floats,   Approximation, NotLinear, std::exp(x),                          no_formula) \
  X(Expm1,      "expm1",      Floats,   Approximation, NotLinear, std::expm1(x),                        no_formula) \
  X(Log,        "log",        Floats,   Approximation, NotLinear, std::log(x),                          no_formula) \
  X(Log1p,      "log1p",      Floats,   Approximation, NotLinear, std::log1p(x),                        no_formula) \
  X(Sqrt,       "sqrt",       Floats,   Instruction,   NotLinear, std::sqrt(x),                         no_formula) \
  X(Rsqrt,      "rsqrt",      Floats,   Approximation, NotLinear, 1 / std::sqrt(x),                     no_formula) \
  X(Reciprocal, "reciprocal", Floats,   Instruction,   NotLinear, 1 / x,                                no_formula) \
  X(Sin,        "sin",        Floats,   Approximation, NotLinear, std::sin(x),                          no_formula) \
  X(Cos,        "cos",        Floats,   Approximation, NotLinear, std::cos(x),                          no_formula) \
  X(Tanh,       "tanh",       Floats,   Approximation, NotLinear, std::tanh(x),                         no_formula) \
  X(Sigmoid,    "sigmoid",    Floats,   Approximation, NotLinear, sigmoid_of(x),                        no_formula) \
  X(Erf,        "erf",        Floats,   Approximation, NotLinear, std::erf(x),                          no_formula) \
  X(Floor,      "floor",      Numbers,  Instruction,   NotLinear, std::floor(x),                        x) \
  X(Ceil,       "ceil",       Numbers,  Instruction,   NotLinear, std::ceil(x),                         x) \
  X(Round,      "round",      Numbers,  Instruction,   NotLinear, std::nearbyint(x),                    x) \
  X(Relu,       "relu",       Numbers,  Formula,       NotLinear, x <= 0 ? 0.0 : x,                     x < 0 ? int64_t{0} : x) \
  X(Not,        "not",        Bits,     Instruction,   NotLinear, no_formula,                           ~x) \
  X(IsFinite,   "is_finite",  Anything, Formula,       NotLinear, std::isfinite(x),                     true) \
  X(IsNan,      "is_nan",     Anything, Formula,       NotLinear, std::isnan(x),                        false) \
  X(Exp2,       "exp2",       Floats,   Approximation, NotLinear, std::exp2(x),                         no_formula) \
  X(Log2,       "log2",       Floats,   Approximation, NotLinear, std::log2(x),                         no_formula) \
  X(Log10,      "log10",      Floats,   Approximation, NotLinear, std::log10(x),                        no_formula) \
  X(Tan,        "tan",        Floats,   Approximation, NotLinear, std::tan(x),                          no_formula) \
  X(Asin,       "asin",       Floats,   Approximation, NotLinear, std::asin(x),                         no_formula) \
  X(Acos,       "acos",       Floats,   Approximation, NotLinear, std::acos(x),                         no_formula) \
  X(Atan,       "atan",       Floats,   Approximation, NotLinear, std::atan(x),                         no_formula) \
  X(Sinh,       "sinh",       Floats,   Approximation, NotLinear, std::sinh(x),                         no_formula) \
  X(Cosh,       "cosh",       Floats,   Approximation, NotLinear, std::cosh(x),                         no_formula) \
  X(Asinh,      "asinh",      Floats,   Approximation, NotLinear, std::asinh(x),                        no_formula) \
  X(Acosh,      "acosh",      Floats,   Approximation, NotLinear, std::acosh(x),                        no_formula) \
  X(Atanh,      "atanh",      Floats,   Approximation, NotLinear, std::atanh(x),                        no_formula) \
  X(Erfc,       "erfc",       Floats,   Approximation, NotLinear, std::erfc(x),                         no_formula) \
  X(Erfinv,     "erfinv",     Floats,   Approximation, NotLinear, inverse_erf(x),                       no_formula) \
  X(Lgamma,     "lgamma",     Floats,   Approximation, NotLinear, log_gamma(x),                         no_formula)

#define STEPGRAPH_BINARY_KINDS(X) \
  /* kind       text         takes    body           linear     neutral     order     floats                       integers */ \
  X(Add,         "add",       Numbers, Instruction,   InBoth,    MinusZero,  Commutes, a + b,                       wrap_add(a, b)) \
  X(Subtract,    "sub",       Numbers, Instruction,   InBoth,    PlusZero,   Ordered,  a - b,                       wrap_subtract(a, b)) \
  X(Multiply,    "mul",       Numbers, Instruction,   InEach,    One,        Commutes, a * b,                       wrap_multiply(a, b)) \
  X(Divide,      "div",       Floats,  Instruction,   InFirst,   One,        Ordered,  a / b,                       no_formula) \
  X(FloorDivide, "floor_div", Numbers, Formula,       NotLinear, IntegerOne, Ordered,  floor_divide_of(a, b),       floor_divide_integers(a, b)) \
  X(Remainder,   "remainder", Numbers, Formula,       NotLinear, NoNumber,   Ordered,  remainder_of(a, b),          remainder_integers(a, b)) \
  X(Power,       "pow",       Numbers, Approximation, NotLinear, One,        Ordered,  std::pow(a, b),              power_integers(a, b)) \
  X(Maximum,     "maximum",   Numbers, Instruction,   NotLinear, NoNumber,   Ordered,  a > b || a != a ? a : b,     std::max(a, b)) \
  X(Minimum,     "minimum",   Numbers, Instruction,   NotLinear, NoNumber,   Ordered,  a < b || a != a ? a : b,     std::min(a, b)) \
  X(And,         "and",       Bits,    Instruction,   NotLinear, NoNumber,   Commutes, no_formula,                  a & b) \
  X(Or,          "or",        Bits,    Instruction,   NotLinear, NoNumber,   Commutes, no_formula,                  a | b) \
  X(Xor,         "xor",       Bits,    Instruction,   NotLinear, NoNumber,   Commutes, no_formula,                  a ^ b) \
  X(Atan2,       "atan2",     Floats,  Approximation, NotLinear, NoNumber,   Ordered,  std::atan2(a, b),            no_formula)

#define STEPGRAPH_COMPARE_KINDS(X) \
  X(Equal,        "eq", a == b) \
  X(NotEqual,     "ne", a != b) \
  X(Less,         "lt", a < b) \
  X(LessEqual,    "le", a <= b) \
  X(Greater,      "gt", a > b) \
  X(GreaterEqual, "ge", a >= b)
// clang-format on
