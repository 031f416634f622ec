//! What is done to a correct result to make it wrong.

use crate::{layer::Kind, linear::Sharding, matrix::Matrix, number::Format, random::Random};

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    ElementByRms,
    ElementByQuarter,
    RowZeroed,
    RowBy2Percent,
    AllBy1Percent,
    AllBy3PerMille,
    BiasTwice,
    RankDropped,
    RanksSwapped,
    ColumnsSwapped,
    HeadsSwapped,
    Every32nd,
    ChunkReplaced,
    BlockDoubled,
    BlockColumnsDoubled,
    ChannelsZeroed,
    RowsExchanged,
}

impl Fault {
    pub(crate) const ALL: [Self; 17] = [
        Self::ElementByRms,
        Self::ElementByQuarter,
        Self::RowZeroed,
        Self::RowBy2Percent,
        Self::AllBy1Percent,
        Self::AllBy3PerMille,
        Self::BiasTwice,
        Self::RankDropped,
        Self::RanksSwapped,
        Self::ColumnsSwapped,
        Self::HeadsSwapped,
        Self::Every32nd,
        Self::ChunkReplaced,
        Self::BlockDoubled,
        Self::BlockColumnsDoubled,
        Self::ChannelsZeroed,
        Self::RowsExchanged,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ElementByRms => "one element ± 5 rms of its row",
            Self::ElementByQuarter => "one element + 0.25, at rms 1",
            Self::RowZeroed => "a row zeroed",
            Self::RowBy2Percent => "a row × 1.02",
            Self::AllBy1Percent => "everything × 1.01",
            Self::AllBy3PerMille => "everything × 1.003",
            Self::BiasTwice => "bias added twice (5 % of rms)",
            Self::RankDropped => "a rank dropped",
            Self::RanksSwapped => "two ranks swapped",
            Self::ColumnsSwapped => "two columns swapped",
            Self::HeadsSwapped => "two heads of 32 swapped",
            Self::Every32nd => "every 32nd element + ½ rms",
            Self::ChunkReplaced => "16 bytes replaced by others",
            Self::BlockDoubled => "128 elements of a row × 2",
            Self::BlockColumnsDoubled => "128 columns × 2",
            Self::ChannelsZeroed => "two channels zeroed",
            Self::RowsExchanged => "two token rows exchanged",
        }
    }

    /// How a row-parallel layer is sharded to have it; `None` where it is made of the finished result.
    pub(crate) fn sharding(self) -> Option<Sharding> {
        match self {
            Self::BiasTwice => Some(Sharding::BiasTwice),
            Self::RankDropped => Some(Sharding::Dropped),
            Self::RanksSwapped => Some(Sharding::Swapped),
            _ => None,
        }
    }

    /// Whether such a layer can have it so that it shows: a factor inside noise is no fault, and what a quarter is
    /// depends on the size of the numbers.
    pub(crate) fn suits(self, kind: Kind, noise: f32) -> bool {
        match self {
            Self::RowBy2Percent | Self::AllBy1Percent | Self::AllBy3PerMille => {
                noise == 0.0 && !kind.amplifies()
            }
            Self::ElementByQuarter => kind == Kind::Gemm,
            Self::BiasTwice | Self::RankDropped | Self::RanksSwapped => kind.is_linear(),
            Self::ChannelsZeroed => kind.is_linear() || matches!(kind, Kind::Residual | Kind::RmsNorm),
            _ => true,
        }
    }

    /// The result with the fault; `None` where there is no place for it or it changes nothing.
    pub(crate) fn inject(self, right: &Matrix, format: Format, seed: u64) -> Option<Matrix> {
        let wrong = self.injected(right, format, &mut Random::new(seed, 3))?;
        let changes = right.numbers.iter().zip(&wrong.numbers).any(|(a, b)| a != b && b.is_finite());
        changes.then_some(wrong)
    }

    fn injected(self, right: &Matrix, format: Format, random: &mut Random) -> Option<Matrix> {
        let (rows, width) = (right.rows, right.width);
        let rms: Vec<f32> = (0..rows).map(|i| rms(right.row(i))).collect();
        let mut sizes: Vec<f32> = rms.iter().copied().filter(|x| *x > 0.0).collect();
        sizes.sort_by(f32::total_cmp);
        // Not in rows that are next to nothing.
        let least = 0.2 * sizes.get(sizes.len().saturating_sub(1) / 2)?;
        let live: Vec<usize> = (0..rows).filter(|i| rms[*i] > least).collect();
        let row = live[random.below(live.len())];
        let finite: Vec<usize> = (0..width).filter(|j| right.at(row, *j).is_finite()).collect();
        let column = finite[random.below(finite.len())];
        let change = |of: &dyn Fn(usize, usize, f32) -> f32| {
            Some(right.map(format, |i, j, x| if x.is_finite() { of(i, j, x) } else { x }))
        };
        let moved = |from: &dyn Fn(usize, usize) -> (usize, usize)| {
            let at = |i, j| {
                let (i, j) = from(i, j);
                right.at(i, j)
            };
            Some(Matrix::of(rows, width, at))
        };
        let block = (width / 2).min(128);
        match self {
            Self::ElementByRms => {
                let by = 5.0 * rms[row] * if random.below(2) == 0 { -1.0 } else { 1.0 };
                change(&|i, j, x| if (i, j) == (row, column) { x + by } else { x })
            }
            Self::ElementByQuarter => change(&|i, j, x| if (i, j) == (row, column) { x + 0.25 } else { x }),
            Self::RowZeroed => change(&|i, _, x| if i == row { 0.0 } else { x }),
            Self::RowBy2Percent => change(&|i, _, x| if i == row { x * 1.02 } else { x }),
            Self::AllBy1Percent => change(&|_, _, x| x * 1.01),
            Self::AllBy3PerMille => change(&|_, _, x| x * 1.003),
            Self::BiasTwice | Self::RankDropped | Self::RanksSwapped => None,
            Self::ColumnsSwapped => {
                let other = (column + 1 + random.below(width - 1)) % width;
                moved(&|i, j| (i, swapped(j, column, other)))
            }
            Self::HeadsSwapped => {
                let heads = width / 32;
                let head = random.below(heads);
                let other = (head + 1 + random.below((heads - 1).max(1))) % heads;
                moved(&|i, j| {
                    let head = if j / 32 < heads { swapped(j / 32, head, other) } else { j / 32 };
                    (i, head * 32 + j % 32)
                })
            }
            Self::Every32nd => {
                let first = random.below(32);
                change(&|i, j, x| if (i * width + j) % 32 == first { x + 0.5 * rms[i] } else { x })
            }
            Self::ChunkReplaced => {
                let length = 128 / format.dtype().bitsize();
                let chunks = width / length;
                let to = random.below(chunks) * length;
                let (from_row, from) = (0..99)
                    .map(|_| (live[random.below(live.len())], random.below(chunks) * length))
                    .find(|(i, j)| {
                        (*i, *j) != (row, to) && right.row(*i)[*j..*j + length].iter().all(|x| x.is_finite())
                    })?;
                moved(&|i, j| {
                    if i == row && (to..to + length).contains(&j) {
                        (from_row, from + j - to)
                    } else {
                        (i, j)
                    }
                })
            }
            Self::BlockDoubled | Self::BlockColumnsDoubled => {
                let first = random.below(width / block) * block;
                let every_row = self == Self::BlockColumnsDoubled;
                let inside = |i, j| (every_row || i == row) && (first..first + block).contains(&j);
                change(&|i, j, x| if inside(i, j) { x * 2.0 } else { x })
            }
            Self::ChannelsZeroed => {
                let zeroed = [column, (column + 1) % width];
                change(&|_, j, x| if zeroed.contains(&j) { 0.0 } else { x })
            }
            Self::RowsExchanged => {
                let other = if row + 1 < rows { row + 1 } else { row.checked_sub(1)? };
                moved(&|i, j| (swapped(i, row, other), j))
            }
        }
    }
}

/// Root mean square, with what is not finite as zero.
fn rms(row: &[f32]) -> f32 {
    let square = row.iter().filter(|x| x.is_finite()).map(|x| x * x).sum::<f32>();
    (square / row.len() as f32).sqrt()
}

/// `a` for `b` and `b` for `a`.
fn swapped(x: usize, a: usize, b: usize) -> usize {
    match x {
        _ if x == a => b,
        _ if x == b => a,
        _ => x,
    }
}
