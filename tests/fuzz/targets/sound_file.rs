//! Fuzzes a sound file of any format.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llb::api::MediaLimits;
use llb::media::Sound;
use llb_fuzz::in_time;

/// The rate of all encoders.
const RATE: u32 = 16_000;
const LIMITS: MediaLimits = MediaLimits { bytes: 1 << 16, pixels: 1, seconds: 20, parts: 1 };

fuzz_target!(|file: &[u8]| {
    let checked = in_time(|| Sound::check_file(file, &LIMITS));
    match in_time(|| Sound::decode(file, RATE, &LIMITS, &|| false)) {
        Ok(sound) => {
            assert_eq!(checked, Ok(()));
            let samples = sound.samples();
            // A sound of one sample gets a second one.
            assert!((2..=LIMITS.seconds as usize * RATE as usize + 2).contains(&samples.len()));
            assert!(samples.iter().all(|sample| sample.is_finite()));
            let length = Sound::check_length(samples.len(), RATE, &LIMITS);
            assert_eq!(length, Ok(()));
        }
        Err(message) => assert!(!message.is_empty()),
    }
});
