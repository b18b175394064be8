# frozen_string_literal: true

# What the other files of this directory expect of the application's config/chaton.rb.
bind "tcp://0.0.0.0:#{ENV.fetch("PORT", "3000")}"

# Health checks and metrics. Only Kubernetes asks from outside of the container, at the address of the pod.
admin { bind ENV.fetch("ADMIN_BIND", "tcp://127.0.0.1:9394") }

# Go on serving for so long after TERM, where a load balancer notices only then that this server leaves.
stop_delay_s ENV.fetch("STOP_DELAY_S", "0").to_i
