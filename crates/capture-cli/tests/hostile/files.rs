//! The files of a run, mostly as the writer makes them, with something in them replaced.

use crate::{choices::Choices, texts};
use capture_core::{journal, name::tensor_key};
use serde_json::{Map, Value, json};
use std::{fs, path::Path};

const DTYPES: [(&str, u64); 14] = [
    ("F32", 32),
    ("BF16", 16),
    ("I64", 64),
    ("U8", 8),
    ("F8_E4M3", 8),
    ("BOOL", 8),
    ("F4", 4),
    ("F6_E2M3", 6),
    ("C64", 64),
    ("F16", 16),
    ("F64", 64),
    ("I32", 32),
    ("F8_E8M0", 8),
    ("F8_E5M2FNUZ", 8),
];

/// One tensor: its record's object, its dtype, shape and bytes.
#[derive(Clone)]
pub(crate) struct Tensor {
    record: Value,
    dtype: &'static str,
    shape: Vec<u64>,
    bytes: Vec<u8>,
}

/// What ranks and runs have in common.
pub(crate) fn tensors(choices: &mut Choices<'_>) -> Vec<Tensor> {
    (0..choices.below(5)).map(|seq| tensor(choices, seq)).collect()
}

/// A run of a few ranks, each with most of these tensors in one segment, sealed or partial, and perhaps a manifest.
pub(crate) fn run(choices: &mut Choices<'_>, dir: &Path, tensors: &[Tensor]) {
    let world = 1 + choices.below(3);
    let mesh = *choices.of(&["tp", "ep", "dp"]);
    for rank in 0..world {
        let id = format!("{}-ab", rank + 1);
        let mesh = json!({"dims": [{"name": mesh, "coord": rank, "size": world}], "assumed": false});
        let mut tags = json!({
            "tpcapture": "1", "run": "r", "rank": rank.to_string(), "world": world.to_string(),
            "mesh": mesh.to_string(), "process": id, "segment": "0",
        });
        spoil(choices, &mut tags, 3);
        let tensors: Vec<Tensor> =
            (0..).zip(tensors).map(|(seq, like)| similar(choices, seq, like)).collect();
        if choices.is(20) {
            digests(choices, &dir.join(format!("rank{rank}.pid{id}.stats.jsonl")), &tags, &tensors);
        }
        let base = format!("rank{rank}.pid{id}.000000");
        if choices.is(30) {
            partial(choices, dir, &base, &tags, tensors);
        } else {
            sealed(choices, dir, &base, tags, &tensors);
        }
        if choices.is(30) {
            let mut manifest = json!({
                "tpcapture": "1", "run": "r", "rank": rank, "world": world, "mesh": mesh, "identity_from": "RANK",
                "process": {"id": id, "pid": 1, "host": "h", "program": "p"}, "versions": {}, "config": {},
                "started_ns": choices.number(), "ended_ns": null, "state": "capturing", "end_reason": null,
                "counters":
                    {"records": 1, "bytes": choices.number(), "segments": 1, "lost": choices.number(), "refused": 0},
                "losses": [], "rules": [], "last_error": null,
            });
            spoil(choices, &mut manifest, 30);
            fs::write(dir.join(format!("rank{rank}.pid{id}.json")), manifest.to_string()).unwrap();
        }
    }
}

/// What is kept of tensors in modes stats and hash.
fn digests(choices: &mut Choices<'_>, path: &Path, tags: &Value, tensors: &[Tensor]) {
    let mut lines = format!("{tags}\n");
    for tensor in tensors {
        let mut line = tensor.record.clone();
        let n = tensor.shape.iter().fold(1, |n: u64, d| n.saturating_mul(*d));
        let digest = match choices.is(50) {
            true => {
                json!({"mode": "hash", "hash": *choices.of(&["0123456789abcdef", "fedcba9876543210", "x"])})
            }
            false => json!({"mode": "stats", "stats": {
                "n": n, "nan": choices.below(2), "pos_inf": 0, "neg_inf": 0, "zero": choices.number(), "min": -1.0,
                "max": 1.5, "mean": 0.25, "rms": 1.0, "absmax": 1.5,
            }}),
        };
        if let (Value::Object(line), Value::Object(digest)) = (&mut line, digest) {
            line.extend(digest);
            line.insert("dtype".into(), tensor.dtype.into());
            line.insert("shape".into(), tensor.shape.clone().into());
        }
        spoil(choices, &mut line, 5);
        lines += &format!("{line}\n");
    }
    lines.truncate(lines.len() - usize::from(choices.is(10)));
    fs::write(path, lines).unwrap();
}

/// Safetensors files that nobody of us wrote, and perhaps their index.
pub(crate) fn checkpoint(choices: &mut Choices<'_>, dir: &Path, tensors: &[Tensor]) {
    for i in 0..1 + choices.below(2) {
        let (mut header, mut data) = (Map::new(), Vec::new());
        for (seq, like) in (0..).zip(tensors) {
            let tensor = similar(choices, seq, like);
            header.insert(tap(&tensor).to_owned(), placed(&tensor, &mut data));
        }
        let mut header = Value::Object(header);
        spoil(choices, &mut header, 20);
        write(choices, &dir.join(format!("m{i}.safetensors")), &header.to_string(), &data);
    }
    if choices.is(20) {
        let b = *choices.of(&["m1.safetensors", "../x", "", "."]);
        let mut index = json!({"weight_map": {"a": "m0.safetensors", "b": b}});
        spoil(choices, &mut index, 30);
        fs::write(dir.join("model.safetensors.index.json"), index.to_string()).unwrap();
    }
}

/// Mostly the same tensor, of other numbers now and then, or another one.
fn similar(choices: &mut Choices<'_>, seq: u64, like: &Tensor) -> Tensor {
    let mut tensor = if choices.is(5) { tensor(choices, seq) } else { like.clone() };
    if choices.is(20) && !tensor.bytes.is_empty() {
        let at = choices.below(tensor.bytes.len() as u64) as usize;
        tensor.bytes[at] = choices.byte();
    }
    spoil(choices, &mut tensor.record, 3);
    tensor
}

fn tensor(choices: &mut Choices<'_>, seq: u64) -> Tensor {
    let &(dtype, bits) = choices.of(&DTYPES);
    let mut shape: Vec<u64> = (0..choices.below(4)).map(|_| choices.number()).collect();
    let numel = |shape: &[u64]| shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d));
    let mut n_bits = numel(&shape).and_then(|n| n.checked_mul(bits));
    if n_bits.is_none_or(|n| n > 1 << 20 || n % 8 > 0) {
        // Now and then a tensor that announces more than there is.
        n_bits = Some(0);
        if !choices.is(10) {
            shape.insert(0, 0);
        }
    }
    let fill = choices.byte();
    let bytes = (0..n_bits.unwrap_or(0) / 8).map(|i| fill.wrapping_mul(1 + (i % 7) as u8)).collect();
    let mut record = json!({
        "tap": *choices.of(&["a", "b", "c", "d", "", "é%#\n"]), "step": seq / 3, "abs_step": choices.number(),
        "call": choices.below(2), "seq": seq, "time_ns": choices.number(), "strides": [], "device": "cpu", "crc32": fill,
    });
    if choices.is(60) {
        record["placement"] = texts::placement(choices).into();
    }
    if choices.is(15) {
        record["rows"] = choices.number().min(shape.first().copied().unwrap_or(9)).into();
    }
    if choices.is(10) {
        record["full_rows"] = choices.number().max(shape.first().copied().unwrap_or(0)).into();
    }
    if choices.is(10) {
        record["encoding"] = (*choices.of(&["complex128", "x"])).into();
    }
    spoil(choices, &mut record, 5);
    Tensor { record, dtype, shape, bytes }
}

fn tap(tensor: &Tensor) -> &str {
    tensor.record.get("tap").and_then(Value::as_str).unwrap_or("")
}

/// The header's entry of a tensor, whose bytes go to the data.
fn placed(tensor: &Tensor, data: &mut Vec<u8>) -> Value {
    let from = data.len();
    data.extend_from_slice(&tensor.bytes);
    json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [from, data.len()]})
}

fn sealed(choices: &mut Choices<'_>, dir: &Path, base: &str, mut tags: Value, tensors: &[Tensor]) {
    let (mut data, mut header) = (Vec::new(), Map::new());
    for tensor in tensors {
        let number = |key: &str| tensor.record.get(key).and_then(Value::as_u64).unwrap_or(0);
        header.insert(tensor_key(tap(tensor), number("step"), number("call")), placed(tensor, &mut data));
    }
    let mut records: Value = tensors.iter().map(|tensor| tensor.record.clone()).collect();
    spoil(choices, &mut records, 5);
    if let Value::Object(tags) = &mut tags {
        tags.insert("records".into(), records.to_string().into());
    }
    header.insert("__metadata__".into(), tags);
    let mut header = Value::Object(header);
    spoil(choices, &mut header, 5);
    write(choices, &dir.join(format!("{base}.safetensors")), &header.to_string(), &data);
}

fn partial(choices: &mut Choices<'_>, dir: &Path, base: &str, tags: &Value, tensors: Vec<Tensor>) {
    let mut opening = tags.clone();
    if let Value::Object(opening) = &mut opening {
        opening.insert("data_start".into(), if choices.is(10) { choices.number() } else { 16 }.into());
    }
    let (mut text, mut data) = (journal::encode(&opening), vec![0; 16]);
    for tensor in tensors {
        let mut line = tensor.record;
        if let Value::Object(line) = &mut line {
            line.insert("dtype".into(), tensor.dtype.into());
            line.insert("shape".into(), tensor.shape.into());
            line.insert("offset".into(), (data.len() - 16).into());
            line.insert("length".into(), tensor.bytes.len().into());
        }
        spoil(choices, &mut line, 5);
        text += &journal::encode(&line);
        data.extend(tensor.bytes);
    }
    let mut text = text.into_bytes();
    torn(choices, &mut text);
    torn(choices, &mut data);
    fs::write(dir.join(format!("{base}.journal")), text).unwrap();
    fs::write(dir.join(format!("{base}.safetensors.partial")), data).unwrap();
}

fn write(choices: &mut Choices<'_>, path: &Path, header: &str, data: &[u8]) {
    let length = if choices.is(3) { choices.number() } else { header.len() as u64 };
    let mut bytes = [&length.to_le_bytes(), header.as_bytes(), data].concat();
    torn(choices, &mut bytes);
    fs::write(path, bytes).unwrap();
}

/// Now and then cut, or a few bytes changed.
fn torn(choices: &mut Choices<'_>, bytes: &mut Vec<u8>) {
    if choices.is(5) {
        bytes.truncate(choices.below(bytes.len() as u64 + 1) as usize);
    }
    if choices.is(5) && !bytes.is_empty() {
        for _ in 0..choices.below(4) {
            let at = choices.below(bytes.len() as u64) as usize;
            bytes[at] = choices.byte();
        }
    }
}

/// So many times of a hundred, something in it becomes something else.
fn spoil(choices: &mut Choices<'_>, value: &mut Value, percent: u8) {
    if !choices.is(percent) {
        return;
    }
    let mut at = value;
    loop {
        let n = match &*at {
            Value::Object(all) => all.len(),
            Value::Array(all) => all.len(),
            _ => 0,
        };
        let child = choices.below(n as u64 + 1) as usize;
        if child == n {
            break;
        }
        at = match at {
            Value::Object(all) => all.values_mut().nth(child).expect("it has so many"),
            Value::Array(all) => &mut all[child],
            _ => unreachable!("n is 0"),
        };
    }
    *at = match choices.below(9) {
        0..4 => choices.number().into(),
        4 => Value::Null,
        5 => texts::of(choices, texts::SELECTION).into(),
        6 => json!(-1.5),
        7 => json!([[], {}, [choices.number()]]),
        _ => (0..64).fold(json!({}), |deep, _| json!([deep])),
    };
}
