//! A tap as an engine written in Rust has it, for tests/off_path.rs to take apart.

use capture_core::{Dtype, Element, Tap, TensorView};

static Q: Tap = Tap::new("layers.0.attn.q");

/// What is left of a tap in the model's code.
#[inline(never)]
pub fn a_model_that_taps(view: &TensorView<'_>) {
    Q.capture(view);
}

/// What is left of marking a step.
#[inline(never)]
pub fn a_model_that_steps() {
    capture_core::step();
}

#[expect(unsafe_code, reason = "makes a view")]
fn main() {
    capture_core::control::start(|name| std::env::var_os(name));
    let q = [1.0f32, 2.0];
    // SAFETY: two floats that outlive the view.
    let view = unsafe { TensorView::new(q.as_ptr().cast(), Element::Plain(Dtype::F32), &[2], &[1], "cpu") };
    a_model_that_steps();
    a_model_that_taps(&view.expect("two floats"));
}
