//! The command line of `open-loop`.

use std::str::FromStr;
use std::time::Duration;

use crate::load_run::LoadPlan;
use crate::server_address::ServerAddress;

/// The help text.
pub const HELP: &str = "\
open-loop --url http://127.0.0.1:PORT/PATH --rate N [options]

Sends GET requests at a constant rate, whatever the responses do. Latencies count
from the moment a request was due.

  --url URL              of a server on this machine
  --rate N               requests a second
  --rates N,N,...        several rates, one after the other
  --seconds S            how long requests count (10)
  --warmup S             how long they are sent before that (1)
  --connections-max N    most connections at a time (512)
  --timeout S            a request without a response after this has failed (10)
  --json                 print one JSON object for each rate, each on its line
";

/// Parsed options.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// One plan for each rate.
    pub plans: Vec<LoadPlan>,
    /// Whether the report is JSON.
    pub json: bool,
}

impl LoadOptions {
    /// Parses the words after the program's name; `None` if help is wanted.
    ///
    /// # Errors
    /// A sentence that names the option.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Option<Self>, String> {
        let mut words = words.into_iter();
        let (mut target, mut rates, mut json) = (None, Vec::new(), false);
        let (mut seconds, mut warmup_s, mut timeout_s, mut connections_max) =
            (10.0, 1.0, 10.0, 512);
        while let Some(name) = words.next() {
            if name == "--help" {
                return Ok(None);
            }
            if name == "--json" {
                json = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{name} needs a value; see --help"))?;
            match name.as_str() {
                "--url" => target = Some(ServerAddress::parse(&value)?),
                "--rate" | "--rates" => {
                    rates = value
                        .split(',')
                        .map(|rate| positive(&name, rate))
                        .collect::<Result<_, _>>()?;
                }
                "--seconds" => seconds = positive(&name, &value)?,
                "--warmup" => warmup_s = number(&name, &value)?,
                "--timeout" => timeout_s = positive(&name, &value)?,
                "--connections-max" => connections_max = number(&name, &value)?,
                _ => return Err(format!("there is no option {name}; see --help")),
            }
        }
        let target = target.ok_or("--url is missing; see --help")?;
        if rates.is_empty() {
            return Err("--rate is missing; see --help".to_string());
        }
        if warmup_s < 0.0 || connections_max == 0 {
            return Err("--warmup must be at least 0 and --connections-max at least 1".to_string());
        }
        let timeout = Duration::from_secs_f64(timeout_s);
        let plan = |rate| {
            let target = target.clone();
            LoadPlan { server: target, rate, seconds, warmup_s, connections_max, timeout }
        };
        Ok(Some(Self { plans: rates.into_iter().map(plan).collect(), json }))
    }
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name} {value}: that is not a number it can use"))
}

fn positive(name: &str, value: &str) -> Result<f64, String> {
    match number(name, value) {
        Ok(found) if found > 0.0 && found < 1e9 => Ok(found),
        Ok(_) => Err(format!("{name} {value}: it has to be greater than 0")),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<LoadOptions>, String> {
        LoadOptions::parse(line.split_whitespace().map(str::to_string))
    }

    #[test]
    fn each_rate_is_a_plan() {
        let line = "--url http://127.0.0.1:80/ --rates 100,250.5 --seconds 3 --warmup 0 --json";
        let options = parse(line).unwrap().unwrap();
        let rates: Vec<f64> = options.plans.iter().map(|plan| plan.rate).collect();
        assert_eq!(rates, [100.0, 250.5]);
        assert_eq!((options.plans[1].seconds, options.plans[1].warmup_s), (3.0, 0.0));
        assert!(options.json);
        assert!(parse("--help").unwrap().is_none());
    }

    #[test]
    fn errors_name_the_option() {
        let url = "--url http://127.0.0.1:80/";
        for (line, named) in [
            ("--rate 1".to_string(), "--url"),
            (url.to_string(), "--rate"),
            (format!("{url} --rate 0"), "--rate 0"),
            (format!("{url} --rate x"), "--rate x"),
            (format!("{url} --rate 1 --sec 3"), "--sec"),
            (format!("{url} --rate"), "--rate needs"),
            (format!("{url} --rate 1 --connections-max 0"), "--connections-max"),
        ] {
            let error = parse(&line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
