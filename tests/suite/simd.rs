//! The SIMD level that a user requests.

use krysp::simd::{Level, level, requested};
use std::process::Command;

/// `KRYSP_SIMD` is read once, so this test runs its program in a new process with the variable set.
#[test]
fn krysp_simd_chooses_the_level_and_an_unknown_one_is_reported() {
    const INNER: &str = "KRYSP_TEST_EXPECTED_LEVEL";
    if let Ok(expected) = std::env::var(INNER) {
        assert_eq!(level().to_string(), expected);
        let named = std::env::var("KRYSP_SIMD").unwrap();
        match requested() {
            Ok(found) => assert!(named == expected && found == Some(level())),
            Err(why) => assert!(named != expected && why.contains(&named), "{why}"),
        }
        return;
    }
    let best = Level::best().to_string();
    for named in ["portable", "avx2", "avx512", "sse2"] {
        let available = Level::ALL.iter().any(|level| level.to_string() == named && level.available());
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "simd::krysp_simd_chooses_the_level_and_an_unknown_one_is_reported"])
            .envs([("KRYSP_SIMD", named), (INNER, if available { named } else { &best })])
            .output()
            .unwrap();
        assert!(status.status.success(), "{named}: {}", String::from_utf8_lossy(&status.stdout));
    }
}
