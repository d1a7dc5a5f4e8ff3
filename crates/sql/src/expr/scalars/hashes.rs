//! Hashes of texts: the digest of a text's UTF-8 bytes, in hexadecimal digits, lower case.

use crate::syntax::prelude::*;

use arrow::array::StringBuilder;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::rows::{Arguments, NUMBER, TEXT, function, push};

/// All of them.
pub(super) fn functions() -> Vec<ScalarUDF> {
    let one: &[&[DataType]] = &[&[TEXT]];
    vec![
        function("md5", &[], one, TEXT, hashed::<Md5>),
        function("sha1", &[], one, TEXT, hashed::<Sha1>),
        function("sha224", &[], one, TEXT, hashed::<Sha224>),
        function("sha256", &[], one, TEXT, hashed::<Sha256>),
        function("sha384", &[], one, TEXT, hashed::<Sha384>),
        function("sha512", &[], one, TEXT, hashed::<Sha512>),
        function("sha2", &[], &[&[TEXT, NUMBER]], TEXT, sha2),
    ]
}

fn hashed<D: Digest>(args: &Arguments) -> DfResult<ArrayRef> {
    args.texts(|row, out| {
        write::<D>(args.text(0, row)?, out);
        Ok(Some(()))
    })
}

/// `SHA2(text, bits)`.
fn sha2(args: &Arguments) -> DfResult<ArrayRef> {
    args.texts(|row, out| {
        let text = args.text(0, row)?;
        match args.number(1, row)? {
            224 => write::<Sha224>(text, out),
            256 => write::<Sha256>(text, out),
            384 => write::<Sha384>(text, out),
            512 => write::<Sha512>(text, out),
            bits => return exec_err!("SHA2 gives 224, 256, 384 or 512 bits, not {bits}"),
        }
        Ok(Some(()))
    })
}

fn write<D: Digest>(text: &str, out: &mut StringBuilder) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    let hash = D::digest(text.as_bytes());
    let hex: String = hash.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
    push(out, &hex);
}
