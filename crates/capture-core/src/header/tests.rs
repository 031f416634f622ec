use super::*;

const META: &str = concat!(
    r#""__metadata__":{"tpcapture":"1","run":"r","rank":"1","world":"2","#,
    r#""mesh":"{\"dims\":[{\"name\":\"tp\",\"coord\":1,\"size\":2}],\"assumed\":false}","process":"42-0badcafe","#,
    r#""segment":"3","later":"unknown keys are ignored","records":"["#,
    r#"{\"tap\":\"q\",\"step\":1,\"abs_step\":9,\"call\":0,\"seq\":4,\"time_ns\":5,\"strides\":[2,1],"#,
    r#"\"device\":\"cpu\",\"crc32\":7},"#,
    r#"{\"tap\":\"q\",\"step\":1,\"abs_step\":9,\"call\":1,\"seq\":5,\"time_ns\":6,\"strides\":[],"#,
    r#"\"device\":\"cpu\",\"crc32\":8}]"}"#,
);
const Q0: &str = r#""step1/q":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}"#;
const Q1: &str = r#""step1/q#1":{"dtype":"U8","shape":[],"data_offsets":[8,9]}"#;

fn read(json: &str, data: u64) -> Result<Header, HeaderError> {
    parse(json.as_bytes(), 8 + json.len() as u64 + data)
}

#[test]
fn a_header_reads_back() {
    let json = format!("{{{Q1},{META},{Q0}}}   ");
    let header = read(&json, 9).unwrap();
    assert_eq!(header.identity, crate::tags::tests::identity());
    assert_eq!((header.segment, header.data_start), (3, 8 + json.len() as u64));
    let places: Vec<_> =
        header.entries.iter().map(|e| (e.record.call, e.dtype, e.shape.clone(), e.range())).collect();
    assert_eq!(places, [(0, Dtype::F32, vec![1, 2], 0..8), (1, Dtype::U8, vec![], 8..9)]);
}

#[test]
fn the_length_is_checked_against_the_file() {
    assert_eq!(json_length(9u64.to_le_bytes(), 17), Ok(9));
    assert_eq!(json_length(10u64.to_le_bytes(), 17), Err(HeaderError::Long { limit: 9, length: 10 }));
    let all = HeaderError::Long { limit: 0, length: u64::MAX };
    assert_eq!(json_length([0xff; 8], 8), Err(all));
    assert_eq!(json_length([0; 8], 7), Err(HeaderError::Short(7)));
    let huge = HeaderError::Long { limit: MAX_HEADER, length: MAX_HEADER + 1 };
    assert_eq!(json_length((MAX_HEADER + 1).to_le_bytes(), u64::MAX), Err(huge));
}

#[track_caller]
fn check(json: &str, data: u64, expected: &str) {
    let error = read(json, data).unwrap_err().to_string();
    assert!(error.starts_with(expected), "expected {expected:?}, found {error:?}");
}

#[test]
fn what_is_no_segment_says_why() {
    let foreign = "no tpcapture metadata";
    check(&format!("{{{Q0}}}"), 8, foreign);
    check(&format!(r#"{{"__metadata__":{{"format":"pt"}},{Q0}}}"#), 8, foreign);
    check(&format!("{{{META},{META},{Q0},{Q1}}}"), 9, r#""__metadata__" stands twice"#);
    check(
        &format!("{{{META},{Q0},{Q0},{Q1}}}"),
        9,
        r#"tensor "step1/q": expected its data at byte 8, found 0..8"#,
    );
    let twice = META.replace(r#""later""#, r#""run""#);
    check(&format!("{{{twice},{Q0},{Q1}}}"), 9, r#""run" stands twice"#);
    check(&format!("{{{META},{Q0},{Q1}}}"), 8, "expected 9 bytes of data, found 8");
    check(&format!("{{{META},{Q0},{Q1}}}"), 10, "expected 9 bytes of data, found 10");
    check(&format!("{{{META},{Q0}}}"), 8, r#"record "step1/q#1" has no tensor"#);
    let third = r#""x":{"dtype":"U8","shape":[],"data_offsets":[9,10]}"#;
    check(&format!("{{{META},{Q0},{Q1},{third}}}"), 10, r#"tensor "x" has no record"#);
    let no_segment = META.replace(r#""segment""#, r#""sigment""#);
    check(&format!("{{{no_segment},{Q0},{Q1}}}"), 9, "metadata: missing field `segment`");
    let number = META.replace(r#""segment":"3""#, r#""segment":3"#);
    check(&format!("{{{number},{Q0},{Q1}}}"), 9, "header is no safetensors JSON: invalid type: integer `3`");
    let records = META.replace(r#"\"crc32\":8"#, r#"\"crc32\":-8"#);
    check(&format!("{{{records},{Q0},{Q1}}}"), 9, "metadata: records: invalid value: integer `-8`");
}

#[test]
fn offsets_lie_in_vain() {
    let with = |q1: &str| format!("{{{META},{Q0},{q1}}}");
    let at = |start, end| Q1.replace("8,9", &format!("{start},{end}"));
    check(&with(&at("7", "8")), 8, r#"tensor "step1/q#1": expected its data at byte 8, found 7..8"#);
    check(&with(&at("9", "10")), 10, r#"tensor "step1/q#1": expected its data at byte 8, found 9..10"#);
    check(&with(&at("8", "7")), 8, r#"tensor "step1/q#1": expected its data at byte 8, found 8..7"#);
    let max = u64::MAX.to_string();
    check(&with(&at("8", &max)), 9, "expected 18446744073709551615 bytes of data, found 9");
    check(&with(&at("8", "99999999999999999999")), 9, "header is no safetensors JSON: ");
    check(&with(&at("8", "10")), 10, r#"tensor "step1/q#1": U8 [] needs 1 bytes, found 2"#);
    let shape = Q1.replace("[]", "[4294967296,4294967296]");
    check(&with(&shape), 9, r#"tensor "step1/q#1": U8 [4294967296, 4294967296] is no whole number"#);
    check(&with(&Q1.replace("U8", "U9")), 9, "header is no safetensors JSON: unknown variant `U9`");
}

#[test]
fn what_is_no_json_is_no_segment() {
    for json in ["", "[]", "null", "{", "{\"a\":", "{} x", "\u{0}"] {
        check(json, 0, "header is no safetensors JSON: ");
    }
    check(&"[".repeat(100_000), 0, "header is no safetensors JSON: ");
    check(&format!(r#"{{"a":{}"#, "{\"a\":".repeat(100_000)), 0, "header is no safetensors JSON: ");
    let nested = format!(r#"{{{META},{Q0},{}}}"#, Q1.replace("[]", &"[".repeat(100_000)));
    check(&nested, 9, "header is no safetensors JSON: ");
    let deep = format!(r#"{{"a":{{"dtype":"U8","shape":[],"data_offsets":[0,1],"x":{}"#, "[".repeat(1 << 20));
    check(&deep, 0, "header is no safetensors JSON: ");
    assert!(matches!(parse(b"{\"\xff\":1}", 20), Err(HeaderError::Json(_))));
}
