//! The instruction sets that kernels are compiled for, and which of them the CPU has.

/// One entry of the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) name: &'static str,
    pub(super) features: Vec<&'static str>,
}

/// The variants of this architecture.
const TABLE: &str = if cfg!(target_arch = "x86_64") {
    include_str!("variants/x86_64.txt")
} else if cfg!(target_arch = "aarch64") {
    include_str!("variants/aarch64.txt")
} else {
    ""
};

/// The variant in this library (build.rs). "baseline" and "native" are not in the table.
pub(super) const BUILT_IN: &str = env!("LLB_KERNELS_BUILT_IN");

/// All variants that files may contain, slowest first.
pub(super) fn all() -> Vec<Variant> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    let words = lines.map(str::split_ascii_whitespace);
    words
        .filter_map(|mut words| Some(Variant { name: words.next()?, features: words.collect() }))
        .collect()
}

/// The rank of a variant among those of files. A higher rank is faster. Variants built for this
/// machine have the highest rank.
pub(super) fn rank(name: &str) -> usize {
    match name {
        "baseline" => 0,
        "native" => usize::MAX,
        _ => all().iter().position(|variant| variant.name == name).map_or(0, |place| place + 1),
    }
}

/// The features of a variant that the CPU lacks or that the system does not enable. `None` if the
/// variant does not exist.
pub(super) fn missing(name: &str) -> Option<Vec<&'static str>> {
    let name = match name {
        // Only the machine that compiled it knows what "native" includes. On x86-64 it includes at
        // least haswell.
        "native" if cfg!(target_arch = "x86_64") => "haswell",
        "native" | "baseline" => return (name == BUILT_IN).then(Vec::new),
        name => name,
    };
    let variant = all().into_iter().find(|variant| variant.name == name)?;
    Some(variant.features.into_iter().filter(|feature| !has(feature)).collect())
}

/// The features of the table that the CPU has.
pub(crate) fn present() -> Vec<&'static str> {
    let mut present: Vec<&'static str> = Vec::new();
    for feature in all().into_iter().flat_map(|variant| variant.features) {
        if !present.contains(&feature) && has(feature) {
            present.push(feature);
        }
    }
    present
}

/// Whether the CPU has, and the system enables, a feature of the table.
fn has(feature: &str) -> bool {
    macro_rules! one_of {
        ($detected:ident $($name:tt)*) => {
            match feature {
                $($name => std::arch::$detected!($name),)*
                _ => false,
            }
        };
    }
    #[cfg(target_arch = "x86_64")]
    let has = one_of!(
        is_x86_feature_detected
        "sse4.2" "avx" "f16c" "fma" "avx2" "bmi2" "avxvnni" "avx512f" "avx512cd" "avx512vl"
        "avx512dq" "avx512bw" "avx512vbmi" "avx512vnni" "avx512bf16"
    );
    #[cfg(target_arch = "aarch64")]
    let has = one_of!(is_aarch64_feature_detected "dotprod" "fp16" "i8mm" "sve");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let has = one_of!(none);
    has
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        let all = all();
        let find = |name: &str| all.iter().find(|variant| variant.name == name);
        let (name, features): (&str, &[&str]) = if cfg!(target_arch = "aarch64") {
            ("armv8.6_0", &["dotprod", "fp16", "i8mm"])
        } else {
            ("haswell", &["sse4.2", "avx", "f16c", "fma", "avx2", "bmi2"])
        };
        assert_eq!(find(name).map(|it| it.features.as_slice()), Some(features));
        let mut names: Vec<&str> = all.iter().map(|variant| variant.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "each name once");
        assert!(rank("baseline") < rank(all[0].name) && rank(all[0].name) < rank(name));
        assert!(rank(name) <= rank(all[count - 1].name));
        assert!(rank(all[count - 1].name) < rank("native"));
        assert_eq!(missing("no-such"), None);
    }

    /// Compares with /proc/cpuinfo, where the kernel lists the features that programs may use,
    /// under its own names.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    #[test]
    fn the_features_are_those_that_linux_lists() {
        let info = std::fs::read_to_string("/proc/cpuinfo").expect("Linux has it");
        let flags = info.lines().find(|line| line.starts_with("flags")).expect("x86 has flags");
        let flags: Vec<String> =
            flags.split_ascii_whitespace().map(|flag| flag.replace('_', "")).collect();
        for feature in all().into_iter().flat_map(|variant| variant.features) {
            let listed = flags.contains(&feature.replace('.', ""));
            assert_eq!(has(feature), listed, "{feature}");
        }
    }
}
