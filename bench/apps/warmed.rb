# frozen_string_literal: true

# Chaton's configuration for deploys: the pages that are measured are requested before workers are forked.
warm_up do |client|
  headers = { "Cookie" => ENV.fetch("WARM_UP_COOKIE") }
  ENV.fetch("WARM_UP_PATHS").split.each { |path| client.get(path, headers: headers) }
end
