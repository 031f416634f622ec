//! Transforms from text.

use super::{Dequant, Order, Scheme, Transform};
use capture_core::notation::{Cursor, NotationError};
use std::str::FromStr;

impl FromStr for Transform {
    type Err = NotationError;

    fn from_str(text: &str) -> Result<Self, NotationError> {
        let mut cursor = Cursor::new("transform", text);
        if cursor.eat("set_rows") {
            return cursor.end().map(|()| Self::SetRows);
        }
        let transform = transform(&mut cursor)?;
        cursor.require(")", "\",\" or \")\"")?;
        cursor.end().map(|()| transform)
    }
}

/// A transform up to its closing bracket.
fn transform(cursor: &mut Cursor<'_>) -> Result<Transform, NotationError> {
    if cursor.eat("crop(") {
        let axis = cursor.axis()?;
        cursor.require(",", "\",\" and a size")?;
        return Ok(Transform::Crop { axis, size: cursor.number()? });
    }
    if cursor.eat("transpose(") {
        let a = cursor.axis()?;
        cursor.require(",", "\",\" and another dim")?;
        return Ok(Transform::Transpose(a, cursor.axis()?));
    }
    if cursor.eat("reshape(") {
        return reshape(cursor);
    }
    if cursor.eat("unswizzle(") {
        cursor.require("128x4", "128x4")?;
        return Ok(Transform::Unswizzle);
    }
    if cursor.eat("dequant(") {
        return dequant(cursor).map(Transform::Dequant);
    }
    if cursor.eat("sort_rows_by(") {
        return cursor.tap().map(Transform::SortRowsBy);
    }
    cursor.expected("crop(, transpose(, reshape(, unswizzle(128x4), dequant(, sort_rows_by( or set_rows")
}

fn reshape(cursor: &mut Cursor<'_>) -> Result<Transform, NotationError> {
    let mut dims = Vec::new();
    loop {
        let start = cursor.column();
        if cursor.eat("-1") {
            if dims.contains(&None) {
                return cursor.expected_at(start, "a number, as -1 stands there already");
            }
            dims.push(None);
        } else {
            dims.push(Some(cursor.number()?));
        }
        if !cursor.eat(",") {
            return Ok(Transform::Reshape(dims));
        }
    }
}

fn dequant(cursor: &mut Cursor<'_>) -> Result<Dequant, NotationError> {
    const SCHEMES: [(&str, Scheme); 5] = [
        ("nvfp4", Scheme::Nvfp4),
        ("mxfp4", Scheme::Mxfp4),
        ("mxfp8", Scheme::Mxfp8),
        ("fp8-block", Scheme::Fp8Block([128, 128])),
        ("int4-group", Scheme::Int4Group(0, Order::Gptq)),
    ];
    let Some((_, mut scheme)) = SCHEMES.into_iter().find(|(name, _)| cursor.eat(name)) else {
        return cursor.expected("nvfp4, mxfp4, mxfp8, fp8-block or int4-group");
    };
    let (mut scale, mut global, mut zero, mut g_idx) = (None, None, None, None);
    let (mut group, mut order) = (None, None);
    while cursor.eat(",") {
        let start = cursor.column();
        let int4 = matches!(scheme, Scheme::Int4Group(..));
        let again = match () {
            () if cursor.eat("scale=") => scale.replace(cursor.tap()?).is_some(),
            () if scheme == Scheme::Nvfp4 && cursor.eat("global=") => {
                let divides = cursor.eat("1/");
                global.replace((cursor.tap()?, divides)).is_some()
            }
            () if int4 && cursor.eat("zero=") => zero.replace(cursor.tap()?).is_some(),
            () if int4 && cursor.eat("g_idx=") => g_idx.replace(cursor.tap()?).is_some(),
            () if int4 && cursor.eat("group=") => group.replace(cursor.positive()?).is_some(),
            () if int4 && cursor.eat("order=") => order.replace(packing(cursor)?).is_some(),
            () => match &mut scheme {
                Scheme::Fp8Block(block) if cursor.eat("block=[") => {
                    block[0] = cursor.positive()?;
                    cursor.require(",", "\",\" and the columns of a block")?;
                    block[1] = cursor.positive()?;
                    cursor.require("]", "\"]\"")?;
                    false
                }
                Scheme::Nvfp4 => return cursor.expected("scale= or global="),
                Scheme::Mxfp4 | Scheme::Mxfp8 => return cursor.expected("scale="),
                Scheme::Fp8Block(_) => return cursor.expected("scale= or block=["),
                Scheme::Int4Group(..) => {
                    return cursor.expected("scale=, zero=, g_idx=, group= or order=");
                }
            },
        };
        if again {
            return cursor.expected_at(start, "each option once");
        }
    }
    if let Scheme::Int4Group(..) = scheme {
        let (Some(group), Some(order)) = (group, order) else {
            return cursor.expected("group=N and order=gptq, gptq_v2 or awq");
        };
        scheme = Scheme::Int4Group(group, order);
    }
    match scale {
        Some(scale) => Ok(Dequant { scheme, scale, global, zero, g_idx }),
        None => cursor.expected("scale=TAP"),
    }
}

fn packing(cursor: &mut Cursor<'_>) -> Result<Order, NotationError> {
    let orders = [("gptq_v2", Order::GptqV2), ("gptq", Order::Gptq), ("awq", Order::Awq)];
    match orders.into_iter().find(|(name, _)| cursor.eat(name)) {
        Some((_, order)) => Ok(order),
        None => cursor.expected("gptq, gptq_v2 or awq"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, canonical: &str) {
        assert_eq!(text.parse::<Transform>().unwrap().to_string(), canonical);
        assert_eq!(canonical.parse::<Transform>().unwrap().to_string(), canonical);
    }

    #[track_caller]
    fn check_error(text: &str, column: usize, expected: &str) {
        let error = text.parse::<Transform>().unwrap_err();
        assert_eq!((error.column, error.expected), (column, expected), "{error}");
    }

    #[test]
    fn transforms_print_canonically() {
        check(" crop( -1,130 ) ", "crop(-1, 130)");
        check("transpose(0,-2)", "transpose(0, -2)");
        check("reshape( 4, -1,2)", "reshape(4, -1, 2)");
        check("unswizzle( 128x4 )", "unswizzle(128x4)");
        check("dequant(nvfp4,global=g,scale=*.s )", "dequant(nvfp4, scale=*.s, global=g)");
        check("dequant(nvfp4, scale=s, global=1/g)", "dequant(nvfp4, scale=s, global=1/g)");
        check("sort_rows_by( *.idx )", "sort_rows_by(*.idx)");
        check(" set_rows ", "set_rows");
        check("dequant(mxfp8,scale=s)", "dequant(mxfp8, scale=s)");
        check("dequant(fp8-block, scale=s)", "dequant(fp8-block, scale=s, block=[128,128])");
        check("dequant(fp8-block, block=[64, 32], scale=s)", "dequant(fp8-block, scale=s, block=[64,32])");
        check(
            "dequant(int4-group, order=gptq_v2, group=64, scale=s, g_idx=i, zero=z)",
            "dequant(int4-group, scale=s, zero=z, g_idx=i, group=64, order=gptq_v2)",
        );
    }

    #[test]
    fn errors_point_at_the_column() {
        check_error(
            "",
            0,
            "crop(, transpose(, reshape(, unswizzle(128x4), dequant(, sort_rows_by( or set_rows",
        );
        check_error("sort_rows_by()", 13, "a tap name");
        check_error("set_rows()", 8, "the end");
        check_error("crop(0)", 6, "\",\" and a size");
        check_error("crop(99999999999, 1)", 5, "a tensor dimension");
        check_error("crop(0, 99999999999999999999)", 8, "a number of at most 17592186044416");
        check_error("reshape(-1, -1)", 12, "a number, as -1 stands there already");
        check_error("unswizzle(64x4)", 10, "128x4");
        check_error("unswizzle(128x4", 15, "\",\" or \")\"");
        check_error("crop(0, 1) x", 11, "the end");
        check_error("dequant(int8, scale=s)", 8, "nvfp4, mxfp4, mxfp8, fp8-block or int4-group");
        check_error("dequant(nvfp4)", 13, "scale=TAP");
        check_error("dequant(mxfp8, global=s)", 15, "scale=");
        check_error("dequant(mxfp8, scale=)", 21, "a tap name");
        check_error("dequant(nvfp4, scale=a, scale=b)", 24, "each option once");
        check_error("dequant(fp8-block, scale=a, block=[0,1])", 35, "a number of at least 1");
        check_error("dequant(int4-group, scale=a)", 27, "group=N and order=gptq, gptq_v2 or awq");
        check_error("dequant(int4-group, order=x)", 26, "gptq, gptq_v2 or awq");
    }
}
