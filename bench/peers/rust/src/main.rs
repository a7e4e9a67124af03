// SPDX-License-Identifier: MIT
//
// The Rust side of the comparison: rslock on tokio, used as its documents say.
// A task for each that wants a lock.
//
//   peer rslock URL
//
// Orders come one a line on standard input; see peers/run.py.
use rslock::{Lock, LockManager};
use std::fmt::Write as _;
use std::io::{BufRead, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);

#[derive(Clone, Default)]
struct Order {
    verb: String,
    n: usize,
    ms: u64,
    name: String,
    hold: u64,
    pause: u64,
    file: String,
}

/// The clock that all processes share.
fn now() -> i64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    ts.tv_sec as i64 * 1_000_000_000 + ts.tv_nsec as i64
}

async fn sleep_micros(us: u64) {
    if us > 0 {
        tokio::time::sleep(Duration::from_micros(us)).await;
    }
}

/// Waits as the library does: it asks again after its usual delay.
async fn take(manager: &LockManager, name: &str) -> Lock {
    manager.acquire(name, LEASE).await.expect("acquire").lock
}

fn read_order(text: &str) -> Order {
    let words: Vec<&str> = text.split_whitespace().collect();
    let word = |i: usize| words.get(i).copied().unwrap_or("").to_string();
    let number = |i: usize| word(i).parse().unwrap_or(0);
    Order {
        verb: word(0),
        n: number(2) as usize,
        ms: number(3),
        name: word(4),
        hold: number(5),
        pause: number(6),
        file: word(7),
    }
}

/// Each of n with a lock of its own.
async fn pairs(manager: &LockManager, o: &Order) -> usize {
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for i in 0..o.n {
        let (manager, stop) = (manager.clone(), stop.clone());
        let name = format!("{}{}", o.name, i);
        tasks.push(tokio::spawn(async move {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                let lock = take(&manager, &name).await;
                manager.unlock(&lock).await;
                count += 1;
            }
            count
        }));
    }
    tokio::time::sleep(Duration::from_millis(o.ms)).await;
    stop.store(true, Ordering::Relaxed);
    let mut count = 0;
    for task in tasks {
        count += task.await.expect("task");
    }
    count
}

async fn contend_one(manager: LockManager, o: Order, who: usize, stop: Arc<AtomicBool>) -> String {
    let mut log = String::new();
    while !stop.load(Ordering::Relaxed) {
        let asked = now();
        let lock = take(&manager, &o.name).await;
        let got = now();
        sleep_micros(o.hold).await;
        let end = now();
        manager.unlock(&lock).await;
        writeln!(log, "{who} {asked} {got} {end}").expect("log");
        sleep_micros(o.pause).await;
    }
    log
}

/// All of n want one lock; each hold is noted.
async fn contend(manager: &LockManager, o: &Order) -> usize {
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..o.n)
        .map(|who| tokio::spawn(contend_one(manager.clone(), o.clone(), who, stop.clone())))
        .collect();
    tokio::time::sleep(Duration::from_millis(o.ms)).await;
    stop.store(true, Ordering::Relaxed);
    let mut log = String::new();
    for task in tasks {
        log += &task.await.expect("task");
    }
    std::fs::write(&o.file, &log).expect("log");
    log.lines().count()
}

async fn run(manager: &LockManager, kept: &mut Vec<Lock>, o: &Order) -> usize {
    match o.verb.as_str() {
        "pairs" => return pairs(manager, o).await,
        "contend" => return contend(manager, o).await,
        "hold" => {
            for i in 0..o.n {
                kept.push(take(manager, &format!("{}{}", o.name, i)).await);
            }
        }
        "wait" => {
            for _ in 0..o.n {
                let (manager, name) = (manager.clone(), o.name.clone());
                tokio::spawn(async move { take(&manager, &name).await });
            }
        }
        other => panic!("unknown order {other}"),
    }
    o.n
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.len() != 3 || args[1] != "rslock" {
        eprintln!("usage: peer rslock URL");
        std::process::exit(2);
    }
    let manager = LockManager::new(vec![args[2].as_str()]);
    let warm = take(&manager, "peers:warm").await;
    manager.unlock(&warm).await;
    println!("{{\"ready\": true}}");
    let mut kept = Vec::new();
    for text in std::io::stdin().lock().lines() {
        let o = read_order(&text.expect("order"));
        if o.verb == "quit" {
            break;
        }
        let start = now();
        let count = run(&manager, &mut kept, &o).await;
        let seconds = (now() - start) as f64 / 1e9;
        println!("{{\"count\": {count}, \"seconds\": {seconds:.6}}}");
        std::io::stdout().flush().expect("answer");
    }
    std::process::exit(0);
}
