//! Tensors one after the other along a dim, and those of several numbers, as experts have, stacked along a dim in front.

use crate::{
    gather::{Full, Tensor},
    whole::Whole,
};
use std::sync::Arc;

/// The tensors one after the other along an axis.
pub(super) fn concatenate(tensors: Vec<Tensor<'_>>, axis: usize) -> Result<Tensor<'_>, String> {
    let head_of: Option<Full> = tensors[0].head_of;
    if tensors.iter().any(|t| t.head_of != head_of) || (head_of.is_some() && axis == 0) {
        return Err("expected parts with all their rows, found first rows only (head=N)".to_owned());
    }
    let wholes = tensors.into_iter().map(|t| t.whole).collect();
    Ok(Tensor { whole: Whole::joined(wholes, axis)?, head_of })
}

/// The shape of so many tensors stacked that were joined along dim 0.
pub(super) fn stacked_shape(joined: &[u64], number: usize) -> Vec<u64> {
    let number = number.max(1) as u64;
    [number, joined[0] / number].into_iter().chain(joined[1..].iter().copied()).collect()
}

/// The tensors joined along dim 0, so many at a time, and what that makes stacked along a dim in front.
pub(super) fn stack(tensors: Vec<Tensor<'_>>, of_one: usize) -> Result<Tensor<'_>, String> {
    let (mut tensors, mut steps) = (tensors.into_iter().map(with_dim_in_front).peekable(), Vec::new());
    while tensors.peek().is_some() {
        steps.push(concatenate(tensors.by_ref().take(of_one).collect(), 1)?);
    }
    concatenate(steps, 0)
}

/// The tensor, and all that it is made of, with a dim of length 1 in front.
fn with_dim_in_front(Tensor { mut whole, head_of }: Tensor<'_>) -> Tensor<'_> {
    let longer = |shape: &[u64]| [1].iter().chain(shape).copied().collect::<Vec<u64>>();
    let parts = Arc::unwrap_or_clone(whole.parts).into_iter().map(|part| {
        let shape = longer(&part.shape);
        part.reshaped(shape)
    });
    whole.parts = Arc::new(parts.collect());
    whole.shape = longer(&whole.shape);
    Tensor { whole, head_of }
}
