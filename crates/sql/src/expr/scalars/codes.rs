//! Numbers and texts in other notations, and what a text is made of, as Flink has them: `BIN`,
//! `HEX`, `UNHEX`, `IS_ALPHA`, `IS_DIGIT`, `IS_DECIMAL`.

use crate::syntax::prelude::*;

use std::fmt::Write;

use arrow::array::BinaryArray;

use super::regexps::compile;
use super::rows::{Arguments, NUMBER, TEXT, function, push};

/// All of them.
pub(super) fn functions() -> Vec<ScalarUDF> {
    let (number, text): (&[DataType], &[DataType]) = (&[NUMBER], &[TEXT]);
    vec![
        function("bin", &[], &[number], TEXT, bin),
        function("hex", &[], &[number, text], TEXT, hex),
        function("unhex", &[], &[text], DataType::Binary, unhex),
        function("is_alpha", &[], &[text, number], DataType::Boolean, |args| {
            is_made(args, |text| !text.is_empty() && text.chars().all(char::is_alphabetic))
        }),
        function("is_digit", &[], &[text, number], DataType::Boolean, |args| {
            let digits = compile(r"^\d+$")?;
            is_made(args, |text| digits.is_match(text))
        }),
        function("is_decimal", &[], &[text, number], DataType::Boolean, |args| {
            is_made(args, is_decimal)
        }),
    ]
}

/// To base 2; negative numbers as 64 bits.
fn bin(args: &Arguments) -> DfResult<ArrayRef> {
    args.texts(|row, out| {
        push(out, &format!("{:b}", args.number(0, row)?));
        Ok(Some(()))
    })
}

/// A number to base 16, negative ones as 64 bits, or the bytes of a text; in capitals.
fn hex(args: &Arguments) -> DfResult<ArrayRef> {
    args.texts(|row, out| {
        if args.is_number(0) {
            push(out, &format!("{:X}", args.number(0, row)?));
            return Ok(Some(()));
        }
        // Writing to memory does not fail.
        args.text(0, row)?.bytes().for_each(|byte| _ = write!(out, "{byte:02X}"));
        Ok(Some(()))
    })
}

/// The bytes of hexadecimal digits, an odd digit first; NULL for other texts.
fn unhex(args: &Arguments) -> DfResult<ArrayRef> {
    let rows = args.rows(|row| {
        let text = args.text(0, row)?.as_bytes();
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let odd = text.len() % 2;
        let first = text[..odd].iter().map(digit);
        let pairs = text[odd..].chunks(2);
        let pairs = pairs.map(|pair| Some(digit(&pair[0])? << 4 | digit(pair.get(1)?)?));
        Ok(first.chain(pairs).collect::<Option<Vec<u8>>>())
    });
    let bytes = rows.collect::<DfResult<Vec<Option<Vec<u8>>>>>()?;
    let bytes: Vec<Option<&[u8]>> = bytes.iter().map(Option::as_deref).collect();
    Ok(Arc::new(BinaryArray::from_opt_vec(bytes)))
}

/// Whether a text, or that of a number, is made so; NULL is not.
fn is_made(args: &Arguments, made: impl Fn(&str) -> bool) -> DfResult<ArrayRef> {
    let is = args.rows(|row| {
        Ok(Some(match args.is_number(0) {
            true => made(&args.number(0, row)?.to_string()),
            false => made(args.text(0, row)?),
        }))
    });
    let is = is.map(|is| Ok(Some(is?.unwrap_or(false)))).collect::<DfResult<BooleanArray>>();
    Ok(Arc::new(is.map_err(|error| exec_datafusion_err!("{error}"))?))
}

/// Digits, with or without a sign, a point and an exponent.
fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') && text.parse::<f64>().is_ok()
}
