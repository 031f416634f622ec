use super::*;
use capture_core::Dtype;

fn part(rank: u32, shape: &[u64], numbers: &[f32]) -> Part<'static> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    Part::new(Some(rank), Dtype::F32, shape, None, bytes.into()).unwrap()
}

fn piece(part: usize, start: u64, length: u64, of: u64) -> Piece {
    Piece { node: Node::Part(part), start, length, of }
}

/// Two rows of three columns: rank 0 holds columns 0 and 1, rank 1 column 2 and one of padding.
fn columns() -> Whole<'static> {
    Whole {
        parts: vec![part(0, &[2, 2], &[0., 1., 10., 11.]), part(1, &[2, 2], &[2., -1., 12., -1.])].into(),
        root: Node::Join(Join { pieces: vec![piece(0, 0, 2, 2), piece(1, 0, 1, 2)], length: 3, inner: 1 }),
        shape: vec![2, 3],
        padded: 1,
    }
}

#[test]
fn slices_of_columns_read_in_row_order() {
    let whole = columns();
    let mut all = [0.0; 6];
    whole.read(0, &mut all);
    assert_eq!(all, [0., 1., 2., 10., 11., 12.]);
    let mut some = [0.0; 3];
    whole.read(2, &mut some);
    assert_eq!(some, [2., 10., 11.]);
    let mut buffer = Vec::new();
    let expected: Vec<u8> = [2f32, 10., 11.].iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(whole.bytes(2, 5, &mut buffer), expected);
    assert_eq!(whole.bytes(3, 5, &mut buffer).len(), 8);
    assert_eq!((whole.owners(4), whole.owners(5)), (vec![0], vec![1]));
}

#[test]
fn a_sum_adds_in_f64_and_knows_its_magnitudes() {
    let whole = Whole {
        parts: vec![part(0, &[2], &[1e8, -3.0]), part(1, &[2], &[1.0, 1.0])].into(),
        root: Node::Sum(vec![Node::Part(0), Node::Part(1)]),
        shape: vec![2],
        padded: 0,
    };
    let (mut sum, mut magnitudes) = ([0.0; 2], [0.0; 2]);
    whole.read(0, &mut sum);
    whole.read_magnitudes(0, &mut magnitudes);
    assert_eq!((sum, magnitudes), ([100_000_001.0, -2.0], [100_000_001.0, 4.0]));
    assert_eq!(whole.owners(1), [0, 1]);
    assert!(whole.has_sum());
}

#[test]
fn every_replica_that_is_not_picked_is_an_alternative() {
    let same = |of: [usize; 2]| Node::Same { pick: 0, of: of.map(Node::Part).to_vec() };
    let parts: Vec<_> = (0..4).map(|rank| part(rank, &[1], &[rank as f32])).collect();
    let whole = |root, n| Whole { parts: parts.clone().into(), root, shape: vec![n], padded: 0 };
    // Two slices, each held by two ranks.
    let pieces = [same([0, 1]), same([2, 3])].map(|node| Piece { node, start: 0, length: 1, of: 1 });
    let joined = whole(Node::Join(Join { pieces: pieces.to_vec(), length: 2, inner: 1 }), 2);
    let picked = |whole: &Whole<'_>| whole.alternatives().iter().map(Whole::picked).collect::<Vec<_>>();
    assert_eq!(joined.picked(), [0, 2]);
    assert_eq!(picked(&joined), [[1, 2], [0, 3]]);
    // Replicas over two dimensions.
    let nested = whole(Node::Same { pick: 0, of: vec![same([0, 1]), same([2, 3])] }, 1);
    assert_eq!(picked(&nested), [[2], [1], [3]]);
    let mut number = [0.0];
    nested.alternatives()[2].read(0, &mut number);
    assert_eq!(number, [3.0]);
}

#[test]
fn a_tensor_of_no_numbers_reads_as_none() {
    let whole = Whole {
        parts: vec![part(0, &[0, 7], &[])].into(),
        root: Node::Part(0),
        shape: vec![0, 7],
        padded: 0,
    };
    whole.read(0, &mut []);
    assert!(whole.is_empty() && whole.bytes(0, 0, &mut Vec::new()).is_empty());
}
