//! Random numbers from a seed, the same on every machine.

/// SplitMix64, with normal numbers by Box and Muller.
pub(crate) struct Random {
    state: u64,
    spare: Option<f32>,
}

impl Random {
    /// A stream of its own for every purpose that one seed serves.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut random = Self { state: seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93), spare: None };
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Uniform in [0, 1).
    pub(crate) fn uniform(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 24) as f32
    }

    pub(crate) fn normal(&mut self) -> f32 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let (radius, angle) = ((-2.0 * (1.0 - self.uniform()).ln()).sqrt(), self.uniform());
        let (sin, cos) = (std::f32::consts::TAU * angle).sin_cos();
        self.spare = Some(radius * sin);
        radius * cos
    }

    /// Nearly normal, and ten times as fast: the sum of four uniform numbers. Good enough for weights, of which there are
    /// many and none large.
    pub(crate) fn nearly_normal(&mut self) -> f32 {
        let bits = self.next();
        let sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
        // Each has the mean (2^16 − 1)/2 and a variance of 2^32/12.
        (sum as f32 - 131_070.0) * (3f32.sqrt() / 65_536.0)
    }

    /// `n` different numbers below `of`.
    pub(crate) fn distinct(&mut self, n: usize, of: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..of).collect();
        for i in 0..n {
            let other = i + self.below(of - i);
            all.swap(i, other);
        }
        all.truncate(n);
        all
    }
}
