//! What is done to each rank's record before the records make a tensor, as a layouts file writes it: `crop(0, 130)`,
//! `unswizzle(128x4)`, `dequant(nvfp4, scale=*.weight_scale, global=*.weight_scale_2)`. The grammar is in docs/layouts.md.

mod parse;

use std::fmt;

/// One step of a tap's `transforms`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transform {
    /// `crop(axis, size)`: the first `size` steps of a dim.
    Crop {
        /// The dim; negative counts from the end.
        axis: i32,
        /// What is left of it.
        size: u64,
    },
    /// `transpose(a, b)`: two dims change places.
    Transpose(i32, i32),
    /// `reshape(…)`: the same numbers in C order under another shape; `None` is the one that follows from the rest.
    Reshape(Vec<Option<u64>>),
    /// `unswizzle(128x4)`: block scales in tiles of 128 rows and 4 columns, as tensor cores want them, put in C order.
    Unswizzle,
    /// `dequant(…)`: codes multiplied by their scales.
    Dequant(Dequant),
    /// `sort_rows_by(TAP)`: each row in the order of the numbers at the same place in another tap.
    SortRowsBy(String),
    /// `set_rows`: each row in ascending order, so that its own does not count.
    SetRows,
}

/// How codes and scales make numbers. Names of taps may hold `*` and `?`, which stand for what those of `match` matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dequant {
    /// The format of codes and scales.
    pub scheme: Scheme,
    /// The tap of the scales.
    pub scale: String,
    /// The tap of one factor for all, or one for each matrix, and whether it divides.
    pub global: Option<(String, bool)>,
    /// The tap of the zeros; without it they are 8.
    pub zero: Option<String>,
    /// The tap that says each input row's group.
    pub g_idx: Option<String>,
}

/// A format of quantised tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// e2m1 in blocks of 16 along the last dim, each with an e4m3 scale.
    Nvfp4,
    /// e2m1 in blocks of 32 along the last dim, each with an e8m0 scale.
    Mxfp4,
    /// e4m3 or e5m2 in blocks of 32 along the last dim, each with an e8m0 scale.
    Mxfp8,
    /// e4m3 in blocks of rows and columns.
    Fp8Block([u64; 2]),
    /// Unsigned 4-bit integers in groups of that many input rows.
    Int4Group(u64, Order),
}

/// How 4-bit integers and their zeros are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Along the rows, zeros one less than they are.
    Gptq,
    /// Along the rows, zeros as they are.
    GptqV2,
    /// Along the columns in the order 0, 2, 4, 6, 1, 3, 5, 7.
    Awq,
}

impl Transform {
    /// The same with every name of a tap replaced.
    #[must_use]
    pub fn with_taps(&self, name: impl Fn(&str) -> String) -> Self {
        match self {
            Self::Dequant(d) => Self::Dequant(Dequant {
                scheme: d.scheme,
                scale: name(&d.scale),
                global: d.global.as_ref().map(|(tap, divides)| (name(tap), *divides)),
                zero: d.zero.as_deref().map(&name),
                g_idx: d.g_idx.as_deref().map(&name),
            }),
            Self::SortRowsBy(tap) => Self::SortRowsBy(name(tap)),
            other => other.clone(),
        }
    }
}

impl fmt::Display for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crop { axis, size } => write!(f, "crop({axis}, {size})"),
            Self::Transpose(a, b) => write!(f, "transpose({a}, {b})"),
            Self::Reshape(dims) => {
                let dims: Vec<String> =
                    dims.iter().map(|d| d.map_or("-1".to_owned(), |d| d.to_string())).collect();
                write!(f, "reshape({})", dims.join(", "))
            }
            Self::Unswizzle => f.write_str("unswizzle(128x4)"),
            Self::Dequant(dequant) => dequant.fmt(f),
            Self::SortRowsBy(tap) => write!(f, "sort_rows_by({tap})"),
            Self::SetRows => f.write_str("set_rows"),
        }
    }
}

impl fmt::Display for Dequant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dequant({}, scale={}", self.scheme.name(), self.scale)?;
        if let Some((tap, divides)) = &self.global {
            write!(f, ", global={}{tap}", if *divides { "1/" } else { "" })?;
        }
        if let Some(tap) = &self.zero {
            write!(f, ", zero={tap}")?;
        }
        if let Some(tap) = &self.g_idx {
            write!(f, ", g_idx={tap}")?;
        }
        match self.scheme {
            Scheme::Fp8Block([m, n]) => write!(f, ", block=[{m},{n}])"),
            Scheme::Int4Group(group, order) => write!(f, ", group={group}, order={})", order.name()),
            Scheme::Nvfp4 | Scheme::Mxfp4 | Scheme::Mxfp8 => f.write_str(")"),
        }
    }
}

impl Scheme {
    /// As a layouts file writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvfp4 => "nvfp4",
            Self::Mxfp4 => "mxfp4",
            Self::Mxfp8 => "mxfp8",
            Self::Fp8Block(_) => "fp8-block",
            Self::Int4Group(..) => "int4-group",
        }
    }
}

impl Order {
    fn name(self) -> &'static str {
        match self {
            Self::Gptq => "gptq",
            Self::GptqV2 => "gptq_v2",
            Self::Awq => "awq",
        }
    }
}
