-- Claims jobs. owner, and the words of `claim`.
return claim(ARGV[1], 2)
