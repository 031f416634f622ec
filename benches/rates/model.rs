//! A decoder-only model of many layers, computed by one rank or by several, with all it would have captured.

use crate::{
    fault::Fault,
    linear::{Linear, Sharding},
    matrix::{Matrix, silu},
    number::Format,
    random::Random,
};

/// How large the model is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) layers: usize,
    pub(crate) tokens: usize,
    pub(crate) hidden: usize,
    pub(crate) heads: usize,
    pub(crate) inner: usize,
    pub(crate) vocabulary: usize,
}

/// Where a layer is tapped, in the order of computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tap {
    InputNorm,
    Probabilities,
    Attention,
    MlpNorm,
    Activation,
    Down,
}

impl Tap {
    pub(crate) const ALL: [Self; 6] =
        [Self::InputNorm, Self::Probabilities, Self::Attention, Self::MlpNorm, Self::Activation, Self::Down];

    /// The tap's name in that layer.
    pub(crate) fn name(self, layer: usize) -> String {
        let name = match self {
            Self::InputNorm => "input_norm",
            Self::Probabilities => "self_attn.probs",
            Self::Attention => "self_attn.o_proj",
            Self::MlpNorm => "mlp_norm",
            Self::Activation => "mlp.act",
            Self::Down => "mlp.down_proj",
        };
        format!("layers.{layer}.{name}")
    }
}

/// A fault and where it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) layer: usize,
    pub(crate) tap: Tap,
    pub(crate) fault: Fault,
    pub(crate) seed: u64,
}

/// Channels and a row beyond all others, as trained models have them.
const MASSIVE: [usize; 2] = [7, 20];

struct Weights {
    input_norm: Vec<f32>,
    mlp_norm: Vec<f32>,
    query: Matrix,
    key: Matrix,
    value: Matrix,
    output: Matrix,
    output_bias: Vec<f32>,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
    down_bias: Vec<f32>,
}

/// The model and what goes into it.
pub(crate) struct Model {
    pub(crate) size: Size,
    format: Format,
    massive: bool,
    layers: Vec<Weights>,
    final_norm: Vec<f32>,
    head: Matrix,
    embedded: Matrix,
}

/// One forward pass: what went into each layer, and what each tap saw, layer by layer and after the last one.
#[derive(Clone, Default)]
pub(crate) struct Pass {
    streams: Vec<Matrix>,
    pub(crate) taps: Vec<(String, Matrix)>,
}

impl Model {
    pub(crate) fn new(size: Size, format: Format, massive: bool, seed: u64) -> Self {
        let Size { hidden, inner, tokens, vocabulary, .. } = size;
        let mut random = Random::new(seed, 5);
        let weight = |random: &mut Random, rows: usize, width, scale: f32| {
            Matrix::weights(random, [rows, width], scale * (rows as f32).powf(-0.5), format)
        };
        let norm = |random: &mut Random| -> Vec<f32> {
            let mut gain: Vec<f32> =
                (0..hidden).map(|_| format.round((0.3 * random.normal()).exp())).collect();
            if massive {
                MASSIVE.into_iter().for_each(|channel| gain[channel] = format.round(0.05));
            }
            gain
        };
        let bias = |random: &mut Random| -> Vec<f32> {
            (0..hidden).map(|_| format.round(0.05 * random.normal())).collect()
        };
        let layers = (0..size.layers)
            .map(|_| Weights {
                input_norm: norm(&mut random),
                mlp_norm: norm(&mut random),
                query: weight(&mut random, hidden, hidden, 1.6),
                key: weight(&mut random, hidden, hidden, 1.6),
                value: weight(&mut random, hidden, hidden, 1.0),
                output: weight(&mut random, hidden, hidden, 1.0),
                output_bias: bias(&mut random),
                gate: weight(&mut random, hidden, inner, 1.0),
                up: weight(&mut random, hidden, inner, 1.0),
                down: weight(&mut random, inner, hidden, 1.5),
                down_bias: bias(&mut random),
            })
            .collect();
        let final_norm = (0..hidden).map(|_| format.round((0.3 * random.normal()).exp())).collect();
        let head = weight(&mut random, hidden, vocabulary, 2.0);
        let embedded = Matrix::of(tokens, hidden, |_, j| {
            let x = random.normal();
            let large = MASSIVE.iter().position(|channel| massive && *channel == j);
            format.round(large.map_or(x, |which| 3.0 * x + [20.0, -35.0][which]))
        });
        Self { size, format, massive, layers, final_norm, head, embedded }
    }

    /// By that many ranks.
    pub(crate) fn forward(&self, ranks: usize) -> Pass {
        self.run(ranks, None, Pass::default())
    }

    /// The same with a fault; `None` where it changes nothing. What comes before it is taken from `right`.
    pub(crate) fn faulty(&self, ranks: usize, place: Place, right: &Pass) -> Option<Pass> {
        let streams = right.streams[..=place.layer].to_vec();
        let taps = right.taps[..place.layer * Tap::ALL.len()].to_vec();
        let pass = self.run(ranks, Some(place), Pass { streams, taps });
        let at = place.layer * Tap::ALL.len() + place.tap as usize;
        (pass.taps[at].1.numbers != right.taps[at].1.numbers).then_some(pass)
    }

    /// Goes on from the last stream of `pass`.
    fn run(&self, ranks: usize, place: Option<Place>, mut pass: Pass) -> Pass {
        let mut stream = pass.streams.pop().unwrap_or_else(|| self.embedded.clone());
        for layer in pass.streams.len()..self.size.layers {
            pass.streams.push(stream.clone());
            stream = self.layer(layer, ranks, place.filter(|p| p.layer == layer), stream, &mut pass.taps);
        }
        let normed = stream.rms_norm(&self.final_norm, self.format);
        let logits = normed.times(&self.head, self.format);
        pass.taps.extend([("final_norm".to_owned(), normed), ("logits".to_owned(), logits)]);
        pass
    }

    fn layer(
        &self,
        layer: usize,
        ranks: usize,
        place: Option<Place>,
        mut stream: Matrix,
        taps: &mut Vec<(String, Matrix)>,
    ) -> Matrix {
        let (w, format) = (&self.layers[layer], self.format);
        if self.massive && layer == 2 {
            stream.numbers[MASSIVE[0]] = 2000.0;
        }
        let mut tapped = |tap: Tap, x: Matrix| {
            let here = place.filter(|p| p.tap == tap && p.fault.sharding().is_none());
            let x = here.and_then(|p| p.fault.inject(&x, format, p.seed)).unwrap_or(x);
            taps.push((tap.name(layer), x.clone()));
            x
        };
        let row_parallel = |tap: Tap, weight, bias: &Vec<f32>, x: &Matrix| {
            let sharding = place.filter(|p| p.tap == tap).and_then(|p| p.fault.sharding());
            Linear { weight, bias: Some(bias), format }.forward(x, ranks, sharding.unwrap_or(Sharding::Right))
        };
        let x = tapped(Tap::InputNorm, stream.rms_norm(&w.input_norm, format));
        let probabilities = tapped(Tap::Probabilities, self.probabilities(&x, w));
        let context = self.context(&probabilities, &x.times(&w.value, format));
        let y = tapped(Tap::Attention, row_parallel(Tap::Attention, &w.output, &w.output_bias, &context));
        let stream = stream.plus(&y, format);
        let x = tapped(Tap::MlpNorm, stream.rms_norm(&w.mlp_norm, format));
        let up = x.times(&w.up, format);
        let gated = x.times(&w.gate, format).map(format, |i, j, gate| silu(gate) * up.at(i, j));
        let gated = tapped(Tap::Activation, gated);
        let y = tapped(Tap::Down, row_parallel(Tap::Down, &w.down, &w.down_bias, &gated));
        stream.plus(&y, format)
    }

    /// Causal attention's probabilities, head after head: `[heads · tokens, tokens]`.
    fn probabilities(&self, x: &Matrix, w: &Weights) -> Matrix {
        let Size { tokens, hidden, heads, .. } = self.size;
        let depth = hidden / heads;
        let (query, key) = (x.times(&w.query, self.format), x.times(&w.key, self.format));
        let scores = Matrix::of(heads * tokens, tokens, |row, to| {
            let (head, from) = (row / tokens * depth, row % tokens);
            let pairs = query.row(from)[head..head + depth].iter().zip(&key.row(to)[head..head + depth]);
            pairs.map(|(q, k)| q * k).sum::<f32>() / (depth as f32).sqrt()
        });
        scores.softmax(|row, to| to <= row % tokens).map(self.format, |_, _, p| p)
    }

    /// Every head's mean of values, side by side: `[tokens, hidden]`.
    fn context(&self, probabilities: &Matrix, value: &Matrix) -> Matrix {
        let Size { tokens, hidden, heads, .. } = self.size;
        let depth = hidden / heads;
        Matrix::of(tokens, hidden, |from, j| {
            let row = probabilities.row(j / depth * tokens + from);
            let seen = row.iter().enumerate().take(from + 1);
            self.format.round(seen.map(|(to, p)| p * value.at(to, j)).sum())
        })
    }
}
