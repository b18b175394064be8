# frozen_string_literal: true

# Puma's configuration for deploys: a phased restart needs workers that load the application by themselves, which those
# of Puma 7 and later do not by default.
preload_app! false
