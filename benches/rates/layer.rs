//! Kinds of layer, each computed whole and by ranks, from the same input or from one that is off by the noise of
//! the layers before.

use crate::{
    linear::{Linear, Sharding},
    matrix::{Matrix, gelu, silu},
    number::Format,
    random::Random,
};

/// A kind of layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Gemm,
    HeavyChannels,
    MassiveRows,
    SwiGlu,
    Softmax,
    RmsNorm,
    Moe,
    Logits,
    Cancelling,
    Residual,
    Relu,
    SparseRelu,
    SparserRelu,
    Gelu,
    SharpSoftmax,
    Router,
    CancellingRows,
    Payload,
}

impl Kind {
    pub(crate) const ALL: [Self; 18] = [
        Self::Gemm,
        Self::HeavyChannels,
        Self::MassiveRows,
        Self::SwiGlu,
        Self::Softmax,
        Self::RmsNorm,
        Self::Moe,
        Self::Logits,
        Self::Cancelling,
        Self::Residual,
        Self::Relu,
        Self::SparseRelu,
        Self::SparserRelu,
        Self::Gelu,
        Self::SharpSoftmax,
        Self::Router,
        Self::CancellingRows,
        Self::Payload,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gemm => "linear with bias",
            Self::HeavyChannels => "linear, channels × 100",
            Self::MassiveRows => "linear, massive rows",
            Self::SwiGlu => "SwiGLU",
            Self::Softmax => "causal softmax",
            Self::RmsNorm => "RMSNorm of a linear",
            Self::Moe => "mixture of experts, rows of zeros",
            Self::Logits => "masked logits",
            Self::Cancelling => "residual that nearly cancels",
            Self::Residual => "residual with massive rows",
            Self::Relu => "ReLU, 16 % not zero",
            Self::SparseRelu => "ReLU, 7 % not zero, tapped before",
            Self::SparserRelu => "ReLU, 2 % not zero, tapped before",
            Self::Gelu => "GELU of mostly negative numbers",
            Self::SharpSoftmax => "softmax of rounded logits",
            Self::Router => "router, fp32 of rounded logits",
            Self::CancellingRows => "linear, one row in four cancels",
            Self::Payload => "payload with a scale of its own",
        }
    }

    /// The dtype it computes in where it is drawn for `format`; `None` where it is of no use there.
    pub(crate) fn arithmetic(self, format: Format) -> Option<Format> {
        match (self, format) {
            (Self::Router, Format::Fp32 | Format::E4m3) => None,
            (Self::Payload, _) => (format == Format::E4m3).then_some(Format::Bf16),
            _ => Some(format),
        }
    }

    /// The dtype of its output where it computes in `arithmetic`.
    fn stored(self, arithmetic: Format) -> Format {
        match self {
            Self::Router => Format::Fp32,
            Self::Payload => Format::E4m3,
            _ => arithmetic,
        }
    }

    /// Whether it is a row-parallel linear layer and no more.
    pub(crate) fn is_linear(self) -> bool {
        matches!(self, Self::Gemm | Self::HeavyChannels | Self::MassiveRows)
    }

    fn channels(self) -> Channels {
        match self {
            Self::HeavyChannels => Channels::Heavy,
            Self::MassiveRows | Self::Residual => Channels::Massive,
            _ => Channels::Plain,
        }
    }
}

/// What an activation's channels are like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Channels {
    Plain,
    /// Some channels are a hundred times as large (12 times in e4m3, which ends at 448).
    Heavy,
    /// And one or two rows have a number far beyond these.
    Massive,
}

/// A layer to compute.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipe {
    pub(crate) kind: Kind,
    pub(crate) format: Format,
    pub(crate) tokens: usize,
    pub(crate) inner: usize,
    pub(crate) width: usize,
    /// Relative noise of the input.
    pub(crate) noise: f32,
    pub(crate) seed: u64,
}

/// Reference and candidate.
pub(crate) type Pair = [Matrix; 2];

/// From an input and a number of ranks to the output.
type Layer<'l> = Box<dyn Fn(&Matrix, usize) -> Matrix + 'l>;

/// What a layer took and gave.
pub(crate) struct Computed {
    pub(crate) input: Pair,
    pub(crate) output: Pair,
    /// The dtype of the output.
    pub(crate) stored: Format,
}

impl Recipe {
    /// How many ranks compute the candidate.
    fn ranks(&self) -> usize {
        [2, 4, 8][(self.seed % 3) as usize]
    }

    /// The reference by one rank, the candidate by several.
    pub(crate) fn compute(&self, sharding: Sharding) -> Computed {
        let Self { kind, format, tokens, inner, width, .. } = *self;
        let mut random = Random::new(self.seed, 1);
        let mut noise = Random::new(self.seed, 2);
        let mut x = activation(&mut random, [tokens, inner], kind.channels(), format);
        if kind == Kind::CancellingRows {
            (0..tokens).step_by(4).for_each(|i| x.row_mut(i).copy_within(..inner / 2, inner / 2));
        }
        let weight = self.weight(&mut random);
        let bias_scale = 0.05 * 1.25 * x.mean_magnitude();
        let bias: Vec<f32> = (0..width).map(|_| format.round(random.normal() * bias_scale)).collect();
        let mut input = self.noisy(&mut noise, x);
        let linear = |weight: &Matrix, bias: Option<&[f32]>, format, x: &Matrix, ranks| {
            let sharding = if ranks > 1 { sharding } else { Sharding::Right };
            Linear { weight, bias, format }.forward(x, ranks, sharding)
        };
        let product = |x: &Matrix, ranks| linear(&weight, None, format, x, ranks);
        let layer: Layer<'_> = match kind {
            Kind::Gemm | Kind::HeavyChannels | Kind::MassiveRows => {
                Box::new(|x, ranks| linear(&weight, Some(&bias), format, x, ranks))
            }
            Kind::SwiGlu => {
                let up = self.weight(&mut random);
                Box::new(move |x, ranks| {
                    let up = linear(&up, None, format, x, ranks);
                    product(x, ranks).map(format, |i, j, gate| silu(gate) * up.at(i, j))
                })
            }
            Kind::Softmax => {
                // Small probabilities are below e4m3: kernels scale them.
                let scale = if format == Format::E4m3 { 256.0 } else { 1.0 };
                Box::new(move |x, ranks| {
                    let scores = linear(&weight, None, Format::Fp32, x, ranks);
                    scores.softmax(|i, j| j + tokens <= i + width).map(format, |_, _, p| p * scale)
                })
            }
            Kind::RmsNorm => {
                let mut gain: Vec<f32> = (0..width).map(|_| (0.5 * random.normal()).exp()).collect();
                gain.iter_mut().take(2).for_each(|g| *g *= 20.0);
                Box::new(move |x, ranks| {
                    linear(&weight, Some(&bias), format, x, ranks).rms_norm(&gain, format)
                })
            }
            Kind::Moe => {
                let second = self.weight(&mut random);
                // Four rows in ten have an expert here, each of another size.
                let routes: Vec<[f32; 2]> = (0..tokens)
                    .map(|_| {
                        let here = f32::from(u8::from(random.uniform() < 0.4));
                        [random.uniform(), here * random.normal().exp()]
                    })
                    .collect();
                Box::new(move |x, ranks| {
                    let second = linear(&second, None, format, x, ranks);
                    product(x, ranks).map(format, |i, j, first| {
                        let [share, size] = routes[i];
                        (first * share + second.at(i, j) * (1.0 - share)) * size
                    })
                })
            }
            Kind::Logits => {
                let masked: Vec<bool> = (0..tokens * width)
                    .map(|at| random.uniform() < 0.05 || at % width >= width - width / 8)
                    .collect();
                Box::new(move |x, ranks| {
                    let seen = |i, j, y| if masked[i * width + j] { format.masked() } else { y };
                    product(x, ranks).map(format, seen)
                })
            }
            Kind::Cancelling => {
                let opposite = product(&input[0], 1);
                let mut stream = Matrix::normal(&mut random, [tokens, width], 1.0, format);
                for (stream, y) in stream.numbers.iter_mut().zip(&opposite.numbers) {
                    if random.uniform() < 0.2 {
                        *stream = format.round(-y * (1.0 + 0.01 * random.normal()));
                    }
                }
                Box::new(move |x, ranks| stream.plus(&product(x, ranks), format))
            }
            Kind::Residual => {
                let stream = activation(&mut random, [tokens, width], Channels::Massive, format);
                let streams = self.noisy(&mut noise, stream);
                Box::new(move |x, ranks| streams[usize::from(ranks > 1)].plus(&product(x, ranks), format))
            }
            Kind::Relu => Box::new(|x, ranks| product(x, ranks).map(format, |_, _, y| (y - 1.0).max(0.0))),
            Kind::SparseRelu | Kind::SparserRelu => {
                input = [product(&input[0], 1), product(&input[1], self.ranks())];
                let below = if kind == Kind::SparseRelu { 1.5 } else { 2.0 };
                Box::new(move |y, _| y.map(format, |_, _, y| (y - below).max(0.0)))
            }
            Kind::Gelu => Box::new(|x, ranks| product(x, ranks).map(format, |_, _, y| gelu(y - 3.0))),
            Kind::SharpSoftmax => {
                let scale = if format == Format::E4m3 { 256.0 } else { 1.0 };
                Box::new(move |x, ranks| {
                    product(x, ranks).softmax(|_, _| true).map(format, |_, _, p| p * scale)
                })
            }
            Kind::Router => Box::new(|x, ranks| product(x, ranks).softmax(|_, _| true)),
            Kind::CancellingRows => Box::new(|x, ranks| product(x, ranks)),
            Kind::Payload => Box::new(|x, ranks| {
                let y = product(x, ranks);
                let largest = y.numbers.iter().fold(0.0, |largest: f32, y| largest.max(y.abs()));
                y.map(Format::E4m3, |_, _, y| y / (largest / 448.0))
            }),
        };
        let output = [layer(&input[0], 1), layer(&input[1], self.ranks())];
        drop(layer);
        Computed { input, output, stored: kind.stored(format) }
    }

    fn weight(&self, random: &mut Random) -> Matrix {
        let Self { kind, format, inner, width, .. } = *self;
        let scale = (inner as f32).powf(-0.5);
        let mut gain = vec![1.0; width];
        let small = format == Format::E4m3;
        if matches!(kind, Kind::HeavyChannels | Kind::MassiveRows) {
            for column in random.distinct((width / 128).max(2), width) {
                gain[column] = if small { 8.0 } else { 100.0 };
            }
        }
        // Results have to stay within e4m3. Its weights are stored with a scale of their own, here 64.
        let by = match kind {
            Kind::Residual => 0.25,
            Kind::Logits => 3.0,
            Kind::Softmax => 4.0,
            Kind::SharpSoftmax => 3.0,
            Kind::Router => 2.0,
            Kind::MassiveRows if small => 1.0 / 6.0,
            Kind::HeavyChannels if small => 1.0 / 3.0,
            _ => 1.0,
        };
        let stored = if small { 64.0 } else { 1.0 };
        let mut weight = Matrix::of(inner, width, |_, j| {
            format.round(random.nearly_normal() * scale * gain[j] * stored) / stored * by
        });
        if kind == Kind::CancellingRows {
            // What the lower half adds is what the upper one does, but for a little.
            let little = if small { 0.25 } else { 0.02 };
            for i in inner / 2..inner {
                for j in 0..width {
                    let rest = little * weight.at(i, j) - weight.at(i - inner / 2, j);
                    weight.numbers[i * width + j] = format.round(rest * stored) / stored;
                }
            }
        }
        weight
    }

    /// The matrix, and the same with the recipe's noise.
    fn noisy(&self, random: &mut Random, x: Matrix) -> Pair {
        let with_noise =
            if self.noise > 0.0 { noisy(random, &x, self.noise, self.format) } else { x.clone() };
        [x, with_noise]
    }
}

fn activation(random: &mut Random, [rows, width]: [usize; 2], channels: Channels, format: Format) -> Matrix {
    let mut x = Matrix::of(rows, width, |_, _| random.normal());
    if channels != Channels::Plain {
        let large = if format == Format::E4m3 { 12.0 } else { 100.0 };
        let heavy = random.distinct((width / 128).max(2), width);
        for &j in &heavy {
            let (factor, offset) = (large * (0.5 + random.uniform()), 0.6 * large * random.normal());
            (0..rows).for_each(|i| x.numbers[i * width + j] = x.at(i, j) * factor + offset);
        }
        let spread: Vec<f32> = (0..width).map(|_| (0.5 * random.normal()).exp()).collect();
        x.numbers.iter_mut().enumerate().for_each(|(at, x)| *x *= spread[at % width]);
        if channels == Channels::Massive {
            x.numbers[heavy[0]] = 30.0 * large;
            if rows > 8 {
                x.numbers[rows / 2 * width + heavy[1]] = -20.0 * large;
            }
        }
    }
    x.map(format, |_, _, x| x)
}

/// Noise of that relative size, half of it in proportion to each number and half to its row and column; it differs
/// from row to row as it does in a model.
pub(crate) fn noisy(random: &mut Random, x: &Matrix, noise: f32, format: Format) -> Matrix {
    let mean = |row: &[f32]| row.iter().map(|x| x.abs()).sum::<f32>() / row.len() as f32;
    let rows: Vec<f32> = (0..x.rows).map(|i| mean(x.row(i)).max(1e-20)).collect();
    let share = |j: usize| (0..x.rows).map(|i| x.at(i, j).abs() / rows[i]).sum::<f32>() / x.rows as f32;
    let columns: Vec<f32> = (0..x.width).map(|j| share(j).max(0.05)).collect();
    let sizes: Vec<f32> = rows.iter().map(|_| noise * (0.3 * random.normal()).exp() / 2f32.sqrt()).collect();
    Matrix::of(x.rows, x.width, |i, j| {
        let x = x.at(i, j);
        format.round(x + sizes[i] * (x * random.normal() + rows[i] * columns[j] * random.normal()))
    })
}
