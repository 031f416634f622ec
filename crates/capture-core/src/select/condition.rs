//! What a rule demands of a tensor and its call beside the tap's name: `[dim0=5,numel<1e6,limit=1]`.

use super::cursor::{Cursor, SelectError};
use safetensors::Dtype;

/// One tensor at a tap, as a selection sees it.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// `None` where safetensors has no name for it; then no `dtype` condition holds.
    pub dtype: Option<Dtype>,
    /// Logical shape.
    pub shape: &'a [u64],
    /// How many times the tap had fired in this step.
    pub call: u64,
    /// The process's global rank; `None` is unknown, and then no `rank` condition holds.
    pub rank: Option<u32>,
}

/// Conditions of one rule. All of `all` must hold for the rule to apply; the rest thins out where it applies.
#[derive(Debug, Clone, Default)]
pub(super) struct Conditions {
    all: Vec<Condition>,
    /// Take the 1st, N+1st, … matching call.
    pub(super) every: Option<u64>,
    /// Take at most so many records per tap and run.
    pub(super) limit: Option<u64>,
    /// Keep the first rows only.
    pub(super) head: Option<u64>,
}

#[derive(Debug, Clone)]
enum Condition {
    /// Size of a dimension; a negative one counts from the end.
    Dim(i32, Span),
    Ndim(Span),
    Numel(Span),
    Call(Span),
    Rank(Span),
    Dtype(Dtype),
}

/// Both ends belong to it.
#[derive(Debug, Clone, Copy)]
struct Span {
    low: u64,
    high: u64,
}

impl Span {
    fn contains(self, n: u64) -> bool {
        self.low <= n && n <= self.high
    }
}

impl Conditions {
    pub(super) fn hold(&self, subject: &Subject<'_>) -> bool {
        self.all.iter().all(|condition| condition.holds(subject))
    }

    pub(super) fn ask_of_tensor(&self) -> bool {
        self.all.iter().any(|condition| !matches!(condition, Condition::Call(_) | Condition::Rank(_)))
    }

    /// The conditions up to the closing bracket, the opening one having been read.
    pub(super) fn parse(cursor: &mut Cursor<'_>) -> Result<Self, SelectError> {
        let (mut conditions, mut seen) = (Self::default(), Vec::new());
        loop {
            conditions.parse_one(cursor, &mut seen)?;
            cursor.skip_spaces();
            match cursor.peek() {
                Some(',') => cursor.bump(),
                Some(']') => break,
                _ => return cursor.expected("\",\" or \"]\""),
            }
        }
        cursor.bump();
        Ok(conditions)
    }

    fn parse_one<'a>(
        &mut self,
        cursor: &mut Cursor<'a>,
        seen: &mut Vec<(&'a str, Bound)>,
    ) -> Result<(), SelectError> {
        const NAMES: &str = "dimN, ndim, dtype, numel, call, rank, every, limit or head";
        cursor.skip_spaces();
        let start = cursor.column();
        let name = cursor.take(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        let spanned: Option<fn(Span) -> Condition> = match name {
            "ndim" => Some(Condition::Ndim),
            "numel" => Some(Condition::Numel),
            "call" => Some(Condition::Call),
            "rank" => Some(Condition::Rank),
            _ => None,
        };
        let dim = name.strip_prefix("dim").and_then(dim_index);
        let mut bound = Bound::Both;
        if spanned.is_some() || dim.is_some() {
            let span;
            (bound, span) = self::span(cursor)?;
            self.all.push(match (spanned, dim) {
                (Some(condition), _) => condition(span),
                (None, index) => Condition::Dim(index.unwrap_or_default(), span),
            });
        } else {
            match name {
                "dtype" => {
                    equals(cursor)?;
                    self.all.push(Condition::Dtype(dtype(cursor)?));
                }
                "every" => self.every = Some(equals(cursor)?.positive()?),
                "limit" => self.limit = Some(equals(cursor)?.positive()?),
                "head" => self.head = Some(equals(cursor)?.positive()?),
                _ => return cursor.expected_at(start, NAMES),
            }
        }
        if seen.iter().any(|(other, of)| *other == name && !bound.complements(*of)) {
            return cursor.expected_at(start, "each condition once");
        }
        seen.push((name, bound));
        Ok(())
    }
}

impl Condition {
    fn holds(&self, subject: &Subject<'_>) -> bool {
        let shape = subject.shape;
        match *self {
            Self::Dim(index, span) => {
                let from_end = if index < 0 { shape.len() } else { 0 };
                let at = from_end.checked_add_signed(index as isize);
                at.and_then(|at| shape.get(at)).is_some_and(|size| span.contains(*size))
            }
            Self::Ndim(span) => span.contains(shape.len() as u64),
            Self::Numel(span) => span.contains(shape.iter().fold(1u64, |n, size| n.saturating_mul(*size))),
            Self::Call(span) => span.contains(subject.call),
            Self::Rank(span) => subject.rank.is_some_and(|rank| span.contains(u64::from(rank))),
            Self::Dtype(dtype) => subject.dtype == Some(dtype),
        }
    }
}

/// Which side of a number a condition bounds: `numel>1,numel<9` are two of a kind that stand together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    Low,
    High,
    Both,
}

impl Bound {
    fn complements(self, other: Self) -> bool {
        self != other && self != Self::Both && other != Self::Both
    }
}

/// `0` and `-1` of `dim0` and `dim-1`, written in one way only.
fn dim_index(text: &str) -> Option<i32> {
    text.parse().ok().filter(|n: &i32| n.to_string() == text && n.unsigned_abs() < 100)
}

fn equals<'c, 'a>(cursor: &'c mut Cursor<'a>) -> Result<&'c mut Cursor<'a>, SelectError> {
    cursor.skip_spaces();
    if !cursor.eat("=") {
        return cursor.expected("\"=\"");
    }
    cursor.skip_spaces();
    Ok(cursor)
}

/// `=5`, `=2..8`, `<5`, `<=5`, `>5` or `>=5`.
fn span(cursor: &mut Cursor<'_>) -> Result<(Bound, Span), SelectError> {
    cursor.skip_spaces();
    let Some(sign) = ["<=", ">=", "<", ">", "="].into_iter().find(|sign| cursor.eat(sign)) else {
        return cursor.expected("=, <, <=, > or >=");
    };
    cursor.skip_spaces();
    let start = cursor.column();
    let (all, n) = (Span { low: 0, high: u64::MAX }, cursor.number()?);
    Ok(match sign {
        "<=" => (Bound::High, Span { high: n, ..all }),
        ">=" => (Bound::Low, Span { low: n, ..all }),
        "<" => match n.checked_sub(1) {
            Some(high) => (Bound::High, Span { high, ..all }),
            None => return cursor.expected_at(start, "a number of at least 1"),
        },
        ">" => (Bound::Low, Span { low: n.saturating_add(1), ..all }),
        _ => {
            let mut high = n;
            if cursor.eat("..") {
                let start = cursor.column();
                high = cursor.number()?;
                if high < n {
                    return cursor.expected_at(start, "a range's last number not below its first");
                }
            }
            (Bound::Both, Span { low: n, high })
        }
    })
}

/// A dtype as safetensors, torch or a kernel's author would write it, in any case: `BF16`, `bfloat16`, `fp8_e4m3fn`.
fn dtype(cursor: &mut Cursor<'_>) -> Result<Dtype, SelectError> {
    let start = cursor.column();
    let written = cursor.take(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.').to_ascii_lowercase();
    let name = written.strip_prefix("torch.").unwrap_or(&written);
    Ok(match name.strip_prefix("fp").map_or_else(|| name.to_owned(), |rest| format!("f{rest}")).as_str() {
        "bool" => Dtype::BOOL,
        "u8" | "uint8" => Dtype::U8,
        "i8" | "int8" => Dtype::I8,
        "u16" | "uint16" => Dtype::U16,
        "i16" | "int16" => Dtype::I16,
        "u32" | "uint32" => Dtype::U32,
        "i32" | "int32" => Dtype::I32,
        "u64" | "uint64" => Dtype::U64,
        "i64" | "int64" => Dtype::I64,
        "f16" | "float16" | "half" => Dtype::F16,
        "bf16" | "bfloat16" => Dtype::BF16,
        "f32" | "float32" | "float" => Dtype::F32,
        "f64" | "float64" | "double" => Dtype::F64,
        "c64" | "complex64" => Dtype::C64,
        "f8_e4m3" | "f8_e4m3fn" | "float8_e4m3fn" => Dtype::F8_E4M3,
        "f8_e5m2" | "float8_e5m2" => Dtype::F8_E5M2,
        "f8_e4m3fnuz" | "float8_e4m3fnuz" => Dtype::F8_E4M3FNUZ,
        "f8_e5m2fnuz" | "float8_e5m2fnuz" => Dtype::F8_E5M2FNUZ,
        "f8_e8m0" | "f8_e8m0fnu" | "float8_e8m0fnu" => Dtype::F8_E8M0,
        "f6_e2m3" => Dtype::F6_E2M3,
        "f6_e3m2" => Dtype::F6_E3M2,
        "f4" | "f4_e2m1" | "float4_e2m1fn_x2" => Dtype::F4,
        _ => {
            return cursor
                .expected_at(start, "a dtype such as bf16, f16, f32, f8_e4m3, f8_e5m2, i64, u8 or bool");
        }
    })
}
