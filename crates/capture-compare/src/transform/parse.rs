//! Transforms from text.

use super::{Dequant, Order, Scheme, Transform, TransformError};
use std::str::FromStr;

impl FromStr for Transform {
    type Err = TransformError;

    fn from_str(text: &str) -> Result<Self, TransformError> {
        let mut parser = Parser { text, at: 0 };
        if parser.eat("set_rows") {
            return if parser.rest().is_empty() { Ok(Self::SetRows) } else { parser.expected("the end") };
        }
        let transform = parser.transform()?;
        parser.require(")", "\",\" or \")\"")?;
        if parser.rest().is_empty() { Ok(transform) } else { parser.expected("the end") }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    /// A transform up to its closing bracket.
    fn transform(&mut self) -> Result<Transform, TransformError> {
        if self.eat("crop(") {
            let axis = self.axis()?;
            self.require(",", "\",\" and a size")?;
            return Ok(Transform::Crop { axis, size: self.number()? });
        }
        if self.eat("transpose(") {
            let a = self.axis()?;
            self.require(",", "\",\" and another dim")?;
            return Ok(Transform::Transpose(a, self.axis()?));
        }
        if self.eat("reshape(") {
            return self.reshape();
        }
        if self.eat("unswizzle(") {
            self.require("128x4", "128x4")?;
            return Ok(Transform::Unswizzle);
        }
        if self.eat("dequant(") {
            return self.dequant().map(Transform::Dequant);
        }
        if self.eat("sort_rows_by(") {
            return self.tap().map(Transform::SortRowsBy);
        }
        self.expected("crop(, transpose(, reshape(, unswizzle(128x4), dequant(, sort_rows_by( or set_rows")
    }

    fn reshape(&mut self) -> Result<Transform, TransformError> {
        let mut dims = Vec::new();
        loop {
            let start = self.at;
            if self.eat("-1") {
                if dims.contains(&None) {
                    self.at = start;
                    return self.expected("a number, as -1 stands there already");
                }
                dims.push(None);
            } else {
                dims.push(Some(self.number()?));
            }
            if !self.eat(",") {
                return Ok(Transform::Reshape(dims));
            }
        }
    }

    fn dequant(&mut self) -> Result<Dequant, TransformError> {
        const SCHEMES: [(&str, Scheme); 5] = [
            ("nvfp4", Scheme::Nvfp4),
            ("mxfp4", Scheme::Mxfp4),
            ("mxfp8", Scheme::Mxfp8),
            ("fp8-block", Scheme::Fp8Block([128, 128])),
            ("int4-group", Scheme::Int4Group(0, Order::Gptq)),
        ];
        let Some((_, mut scheme)) = SCHEMES.into_iter().find(|(name, _)| self.eat(name)) else {
            return self.expected("nvfp4, mxfp4, mxfp8, fp8-block or int4-group");
        };
        let (mut scale, mut global, mut zero, mut g_idx) = (None, None, None, None);
        let (mut group, mut order) = (None, None);
        while self.eat(",") {
            let start = self.at;
            let int4 = matches!(scheme, Scheme::Int4Group(..));
            let again = match () {
                () if self.eat("scale=") => scale.replace(self.tap()?).is_some(),
                () if scheme == Scheme::Nvfp4 && self.eat("global=") => {
                    let divides = self.eat("1/");
                    global.replace((self.tap()?, divides)).is_some()
                }
                () if int4 && self.eat("zero=") => zero.replace(self.tap()?).is_some(),
                () if int4 && self.eat("g_idx=") => g_idx.replace(self.tap()?).is_some(),
                () if int4 && self.eat("group=") => group.replace(self.positive()?).is_some(),
                () if int4 && self.eat("order=") => order.replace(self.order()?).is_some(),
                () => match &mut scheme {
                    Scheme::Fp8Block(block) if self.eat("block=[") => {
                        block[0] = self.positive()?;
                        self.require(",", "\",\" and the columns of a block")?;
                        block[1] = self.positive()?;
                        self.require("]", "\"]\"")?;
                        false
                    }
                    Scheme::Nvfp4 => return self.expected("scale= or global="),
                    Scheme::Mxfp4 | Scheme::Mxfp8 => return self.expected("scale="),
                    Scheme::Fp8Block(_) => return self.expected("scale= or block=["),
                    Scheme::Int4Group(..) => {
                        return self.expected("scale=, zero=, g_idx=, group= or order=");
                    }
                },
            };
            if again {
                self.at = start;
                return self.expected("each option once");
            }
        }
        if let Scheme::Int4Group(..) = scheme {
            let (Some(group), Some(order)) = (group, order) else {
                return self.expected("group=N and order=gptq, gptq_v2 or awq");
            };
            scheme = Scheme::Int4Group(group, order);
        }
        match scale {
            Some(scale) => Ok(Dequant { scheme, scale, global, zero, g_idx }),
            None => self.expected("scale=TAP"),
        }
    }

    fn order(&mut self) -> Result<Order, TransformError> {
        let orders = [("gptq_v2", Order::GptqV2), ("gptq", Order::Gptq), ("awq", Order::Awq)];
        match orders.into_iter().find(|(name, _)| self.eat(name)) {
            Some((_, order)) => Ok(order),
            None => self.expected("gptq, gptq_v2 or awq"),
        }
    }

    /// The name of a tap, which ends at a comma or bracket.
    fn tap(&mut self) -> Result<String, TransformError> {
        let rest = self.rest();
        let name = rest[..rest.find([',', ')']).unwrap_or(rest.len())].trim_end().to_owned();
        if name.is_empty() {
            return self.expected("a tap name");
        }
        self.at += name.len();
        Ok(name)
    }

    fn axis(&mut self) -> Result<i32, TransformError> {
        let start = self.at;
        let negative = self.eat("-");
        match i32::try_from(self.number()?) {
            Ok(axis) => Ok(if negative { -axis } else { axis }),
            Err(_) => {
                self.at = start;
                self.expected("a tensor dimension")
            }
        }
    }

    fn positive(&mut self) -> Result<u64, TransformError> {
        let start = self.at;
        match self.number()? {
            0 => {
                self.at = start;
                self.expected("a number of at least 1")
            }
            n => Ok(n),
        }
    }

    fn number(&mut self) -> Result<u64, TransformError> {
        self.skip_spaces();
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        match self.rest()[..digits].parse() {
            Ok(n) => {
                self.at += digits;
                Ok(n)
            }
            Err(_) => self.expected("a number"),
        }
    }

    fn require(&mut self, token: &str, expected: &'static str) -> Result<(), TransformError> {
        if self.eat(token) { Ok(()) } else { self.expected(expected) }
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip_spaces();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
            self.skip_spaces();
        }
        found
    }

    fn skip_spaces(&mut self) {
        self.at += self.rest().bytes().take_while(|b| *b == b' ').count();
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn expected<T>(&self, expected: &'static str) -> Result<T, TransformError> {
        Err(TransformError { text: self.text.to_owned(), column: self.at, expected })
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
        check_error("crop(0, 99999999999999999999)", 8, "a number");
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
