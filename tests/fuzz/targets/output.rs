//! Fuzzes a reply of any family, of a format that is known from evidence, or without a format. It
//! consists of markers of this and of other families, calls, JSON and any text, in any order. It is
//! parsed whole, in pieces and truncated, with and without control tokens.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use llb::output::format::Format;
use llb_fuzz::replies::{self, Options, families};
use llb_fuzz::vocabulary;

#[derive(Debug)]
struct Input {
    format: Option<Format>,
    options: Options,
    text: String,
    cuts: Vec<u8>,
    times: usize,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Input> {
        let family = u.choose_index(families().len())?;
        let mut options = Options::arbitrary(u)?;
        options.special = vocabulary::special_tokens(u)?;
        let format = match u.int_in_range(0..=3)? {
            0 => None,
            1 => vocabulary::evident_format(u, &options.special)?,
            _ => Some(families()[family].clone()),
        };
        let times = *u.choose(&[1, 1, 1, 1, 1, 1, 16, 256])?;
        let cuts = Vec::arbitrary(u)?;
        let mut text = String::new();
        while !u.is_empty() && text.len() < 4096 {
            let family = match u.int_in_range(0..=3)? {
                0 => u.choose_index(families().len())?,
                _ => family,
            };
            replies::piece(u, &families()[family], &mut text)?;
        }
        Ok(Input { format, options, text, cuts, times })
    }
}

fuzz_target!(|input: Input| {
    let text = input.text.repeat(input.times);
    replies::check(input.format.as_ref(), &input.options, &text, &input.cuts);
    if input.options.controls {
        replies::check_controls(input.format.as_ref(), &input.options, &text);
    }
    if input.times == 1 {
        replies::check_beginnings(input.format.as_ref(), &input.options, &text, &input.cuts);
    }
});
