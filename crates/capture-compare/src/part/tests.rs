use super::*;

fn part(
    dtype: Dtype,
    shape: &[u64],
    encoding: Option<&str>,
    bytes: &[u8],
) -> Result<Part<'static>, PartError> {
    Part::new(Some(0), dtype, shape, encoding, bytes.to_vec().into())
}

#[test]
fn complex_numbers_are_two_numbers() {
    let bytes: Vec<u8> = [1.0f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let part = part(Dtype::C64, &[1], None, &bytes).unwrap();
    let mut out = [0.0; 2];
    part.read(0, &mut out);
    assert_eq!((out, part.shape.as_slice(), part.complex), ([1.0, -2.0], [1, 2].as_slice(), true));
}

#[test]
fn packed_numbers_are_decoded_where_they_are_read() {
    // Two elements share a byte, the first in the low half: 0x2 is 1.0, 0x9 is -0.5.
    let part = part(Dtype::F4, &[2], None, &[0x92]).unwrap();
    let mut out = [0.0; 1];
    part.read(1, &mut out);
    assert_eq!((out, part.is_stored()), ([-0.5], false));
    assert_eq!(part.float().unwrap().precision, 2);
}

#[test]
fn bytes_must_fit_the_shape() {
    let error = part(Dtype::BF16, &[5, 128], None, &[0; 640]).unwrap_err();
    assert_eq!(error.to_string(), "a tensor of BF16 [5, 128] needs 1280 bytes, found 640");
    assert!(matches!(
        part(Dtype::U8, &[u64::MAX, 2], None, &[]).unwrap_err(),
        PartError::Length { expected: None, .. }
    ));
    assert_eq!(part(Dtype::F32, &[1], Some("odd"), &[0; 4]).unwrap_err(), PartError::Encoding("odd".into()));
    let error = part(Dtype::U8, &[0, LARGEST + 1], None, &[]).unwrap_err();
    assert_eq!(error.to_string(), "expected dims of at most 17592186044416, found [0, 17592186044417]");
}

#[test]
fn equal_bytes_are_shared_and_others_kept() {
    let (a, b, c) = ([1u8, 2, 3, 4], [1u8, 2, 3, 4], [1u8, 2, 3, 5]);
    let of = |bytes| Part::new(Some(0), Dtype::U8, &[4], None, Cow::Borrowed(bytes)).unwrap();
    let (first, mut equal, mut other) = (of(&a), of(&b), of(&c));
    assert!(!equal.shares(&first) && equal == first);
    equal.share(&first);
    other.share(&first);
    assert!(equal.shares(&first) && equal == first);
    assert_eq!((&*other.bytes(3, 4), other == first), ([5].as_slice(), false));
}
