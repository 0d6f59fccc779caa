//! A reply of any family with its markers, calls, JSON and any text in any order, whole and in
//! pieces.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use llb_fuzz::replies::{self, Options, families};

#[derive(Debug)]
struct Input {
    family: usize,
    options: Options,
    text: String,
    cuts: Vec<u8>,
    times: usize,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Input> {
        let family = u.choose_index(families().len())?;
        let options = Options::arbitrary(u)?;
        let times = *u.choose(&[1, 1, 1, 1, 1, 1, 16, 256])?;
        let cuts = Vec::arbitrary(u)?;
        let mut text = String::new();
        while !u.is_empty() && text.len() < 4096 {
            replies::piece(u, &families()[family], &mut text)?;
        }
        Ok(Input { family, options, text, cuts, times })
    }
}

fuzz_target!(|input: Input| {
    replies::check(
        &families()[input.family],
        &input.options,
        &input.text.repeat(input.times),
        &input.cuts,
    );
});
