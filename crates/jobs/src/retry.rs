//! The delay of retries.

/// Seconds until retry number `count` (0 for the first): `count⁴ + 15` and a jitter of `0..10 ×
/// (count + 1)`, Sidekiq's formula since 6.4. `random` is uniform in 0..1.
pub fn delay_s(count: u32, random: f64) -> f64 {
    let count = f64::from(count);
    count.powi(4) + 15.0 + (random * 10.0 * (count + 1.0)).floor()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_grows_with_the_fourth_power_and_has_jitter() {
        assert_eq!(delay_s(0, 0.0), 15.0);
        assert_eq!(delay_s(0, 0.999), 24.0);
        assert_eq!(delay_s(3, 0.0), 96.0);
        assert_eq!(delay_s(3, 0.999), 135.0);
        assert!(
            (0..25).map(|n| delay_s(n, 0.5)).sum::<f64>() / 86_400.0 > 20.0,
            "25 take three weeks"
        );
    }
}
